// SPDX-License-Identifier: MIT

package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"mori/core/config"
)

// The levels beyond slog's own.
const (
	LevelTrace    = slog.LevelDebug - 4
	LevelCritical = slog.LevelError + 4
)

// ParseLevel parses trace, debug, info, warn, error and critical in any case; anything else is
// warn.
func ParseLevel(text string) slog.Level {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "trace":
		return LevelTrace
	case "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "error":
		return slog.LevelError
	case "critical":
		return LevelCritical
	}
	return slog.LevelWarn
}

func levelText(l slog.Level) string {
	switch {
	case l < slog.LevelDebug:
		return "trace"
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	case l < LevelCritical:
		return "error"
	}
	return "critical"
}

var modules struct {
	sync.Mutex
	level map[string]*slog.LevelVar
	sink  *output
}

// An output is the destination of the log, and the lines that were written there.
type output struct {
	io.Writer
	repeats limiter
}

func newOutput(w io.Writer) *output { return &output{Writer: w, repeats: limiter{every: repeatEvery}} }

// level returns the module's level. It reads the environment on first use.
func level(module string) *slog.LevelVar {
	modules.Lock()
	defer modules.Unlock()
	if v, ok := modules.level[module]; ok {
		return v
	}
	if modules.level == nil {
		modules.level = map[string]*slog.LevelVar{}
	}
	v := new(slog.LevelVar)
	v.Set(levelFromEnv(module))
	modules.level[module] = v
	return v
}

func levelFromEnv(module string) slog.Level {
	if config.Flag(config.DisableLogging, false) {
		return LevelCritical
	}
	text := config.Get("MORI_" + strings.ToUpper(module) + "_LOG_LEVEL")
	if text == "" {
		text = config.Get(config.GlobalLogLevel)
	}
	return ParseLevel(text)
}

// SetLevel sets the module's level from now on.
func SetLevel(module, text string) { level(module).Set(ParseLevel(text)) }

// For returns the module's logger.
func For(module string) *slog.Logger {
	return slog.New(&handler{module: module, level: level(module), out: sink()})
}

// Answer logs an error that is the caller's only information: it is written every time.
func Answer(module, text string) {
	h := &handler{module: module, level: level(module), out: sink()}
	if h.Enabled(context.Background(), slog.LevelError) {
		_ = h.write(time.Now(), slog.LevelError, text) // as in Handle
	}
}

// SetOutput sends the log to w instead of standard error and MORI_LOG_FILE. It applies to loggers
// that For returns from now on. Tests use it.
func SetOutput(w io.Writer) {
	modules.Lock()
	defer modules.Unlock()
	modules.sink = newOutput(w)
}

// sink opens standard error and, if configured, the log file, once.
func sink() *output {
	modules.Lock()
	defer modules.Unlock()
	if modules.sink != nil {
		return modules.sink
	}
	modules.sink = newOutput(os.Stderr)
	if name := config.Get(config.LogFile); name != "" {
		f, err := os.Create(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mori: %s: %v; logging to standard error only\n", config.LogFile, err)
		} else {
			modules.sink = newOutput(io.MultiWriter(os.Stderr, f))
		}
	}
	return modules.sink
}

// A handler writes the records of a module.
type handler struct {
	module string
	level  *slog.LevelVar
	out    *output
	attrs  string
	peer   string // of attrs
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle writes the record, unless it repeats a warning or an error: see limiter.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	peer := h.peer
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		if a.Key == "peer" {
			peer = a.Value.String()
		}
		return true
	})
	text := b.String()
	if r.Level >= slog.LevelWarn && !h.out.repeats.admit(h.module+" "+text, peer, func(more int) {
		// A failure to write the log cannot be reported anywhere else.
		_ = h.write(time.Now(), r.Level, fmt.Sprintf("%s (and %d more like it within %v)", text, more,
			h.out.repeats.every))
	}) {
		return nil
	}
	return h.write(r.Time, r.Level, text)
}

// write writes one line with one Write, so that lines of several processes stay whole.
func (h *handler) write(at time.Time, level slog.Level, text string) error {
	if at.IsZero() {
		at = time.Now()
	}
	_, err := fmt.Fprintf(h.out, "[%s] [%d] [%s] [%s] %s\n", at.Format("2006-01-02 15:04:05.000"), os.Getpid(), h.module,
		levelText(level), text)
	return err
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	for _, a := range attrs {
		out.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		if a.Key == "peer" {
			out.peer = a.Value.String()
		}
	}
	return &out
}

func (h *handler) WithGroup(string) slog.Handler { return h }
