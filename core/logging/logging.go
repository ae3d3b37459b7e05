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

// ParseLevel knows trace, debug, info, warn, error and critical in any case; anything else is
// error.
func ParseLevel(text string) slog.Level {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "trace":
		return LevelTrace
	case "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "warn", "warning":
		return slog.LevelWarn
	case "critical":
		return LevelCritical
	}
	return slog.LevelError
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
	sink  io.Writer
}

// level returns the module's level, reading the environment the first time.
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

// SetLevel forces the module's level from now on.
func SetLevel(module, text string) { level(module).Set(ParseLevel(text)) }

// For returns the module's logger.
func For(module string) *slog.Logger {
	return slog.New(&handler{module: module, level: level(module), out: sink()})
}

// SetOutput sends the log to w instead of standard output and MORI_LOG_FILE. It applies to the
// loggers that For makes from now on; tests use it.
func SetOutput(w io.Writer) {
	modules.Lock()
	defer modules.Unlock()
	modules.sink = w
}

// sink opens standard output and, if asked for, the log file, once.
func sink() io.Writer {
	modules.Lock()
	defer modules.Unlock()
	if modules.sink != nil {
		return modules.sink
	}
	modules.sink = os.Stdout
	if name := config.Get(config.LogFile); name != "" {
		f, err := os.Create(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mori: %s: %v; logging to standard output only\n", config.LogFile, err)
		} else {
			modules.sink = io.MultiWriter(os.Stdout, f)
		}
	}
	return modules.sink
}

// A handler writes a record as one line with one Write, so that lines of several processes stay
// whole.
type handler struct {
	module string
	level  *slog.LevelVar
	out    io.Writer
	attrs  string
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	t := r.Time
	if t.IsZero() {
		t = time.Now()
	}
	fmt.Fprintf(&b, "[%s] [%d] [%s] [%s] %s%s", t.Format("2006-01-02 15:04:05.000"), os.Getpid(), h.module, levelText(r.Level), r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	b.WriteByte('\n')
	_, err := io.WriteString(h.out, b.String())
	return err
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	for _, a := range attrs {
		out.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &out
}

func (h *handler) WithGroup(string) slog.Handler { return h }
