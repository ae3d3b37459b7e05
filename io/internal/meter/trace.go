// SPDX-License-Identifier: MIT

package meter

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// A Traced is an engine whose records are written to a trace, in order of submission.
type Traced struct {
	Engine  string
	Records []Record
}

// An event is one event of the trace-event format, which Perfetto and Chrome's about:tracing load.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"` // X: a slice; M: the name of a process or a track
	Kind  string         `json:"cat,omitempty"`
	TS    micros         `json:"ts"`
	Dur   *micros        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// micros is nanoseconds that are written as microseconds.
type micros int64

// MarshalJSON writes all digits: a float has too few of them for times since 1970.
func (m micros) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, int64(m)/1000, 10), nil
}

// WriteTrace writes the records as one JSON document. Each transfer is a slice that contains a
// slice for each of its stages. Each engine, peer and path has one track, and more where transfers
// overlap, because slices of one track may not overlap.
func WriteTrace(w io.Writer, pid int, process string, engines []Traced, name func(code uint32) string) error {
	t := tracer{out: bufio.NewWriter(w), pid: pid, name: name}
	t.text(`{"displayTimeUnit":"ms","traceEvents":[`)
	t.emit(&event{Name: "process_name", Phase: "M", PID: pid, Args: map[string]any{"name": process}})
	for _, e := range engines {
		t.engine(&e)
	}
	t.text("\n]}\n")
	if t.err != nil {
		return fmt.Errorf("write a trace: %w", t.err)
	}
	return t.out.Flush()
}

type tracer struct {
	out    *bufio.Writer
	pid    int
	name   func(code uint32) string
	events int
	tids   int
	err    error
}

func (t *tracer) text(s string) {
	if t.err == nil {
		_, t.err = t.out.WriteString(s)
	}
}

func (t *tracer) emit(e *event) {
	b, err := json.Marshal(e)
	if err != nil && t.err == nil {
		t.err = err
	}
	if t.events++; t.events > 1 {
		t.text(",")
	}
	t.text("\n")
	t.text(string(b))
}

// A lane is a track and the time when its last slice ends.
type lane struct {
	tid int
	end time.Time
}

func (t *tracer) engine(e *Traced) {
	lanes := map[*Path][]lane{}
	for i := range e.Records {
		r := &e.Records[i]
		all := lanes[r.Path]
		k := slices.IndexFunc(all, func(l lane) bool { return !l.end.After(r.Start) })
		if k < 0 {
			k = len(all)
			t.tids++
			all = append(all, lane{tid: t.tids})
			t.track(e.Engine, r.Path, t.tids, k)
		}
		all[k].end = t.transfer(r, all[k].tid)
		lanes[r.Path] = all
	}
}

func (t *tracer) track(engine string, p *Path, tid, k int) {
	name := fmt.Sprintf("%s → %s over %s", engine, p.Peer, p.Name)
	if k > 0 {
		name += fmt.Sprintf(" (%d)", k+1)
	}
	t.emit(&event{Name: "thread_name", Phase: "M", PID: t.pid, TID: tid, Args: map[string]any{"name": name}})
	t.emit(&event{Name: "thread_sort_index", Phase: "M", PID: t.pid, TID: tid, Args: map[string]any{"sort_index": tid}})
}

// transfer writes the slices of one transfer and returns when they end. Times are whole
// microseconds, and stages end within their transfer.
func (t *tracer) transfer(r *Record, tid int) time.Time {
	start, end := r.Start.UnixNano()/1000*1000, (r.Start.UnixNano()+int64(r.Took)+999)/1000*1000
	end = max(end, start+1000)
	at := func(d time.Duration) int64 { return min(end, (r.Start.UnixNano()+int64(d))/1000*1000) }
	t.slice(tid, t.title(r), "transfer", start, end, t.args(r))
	if r.LastOp > 0 {
		first, last := at(r.FirstOp), at(max(r.FirstOp, r.LastOp))
		t.slice(tid, "until the first op was done", "stage", start, first, nil)
		t.slice(tid, "until the last op was done", "stage", first, last, nil)
		t.slice(tid, "until it was told", "stage", last, at(r.Took), nil)
	}
	return time.Unix(0, end)
}

// slice writes one slice, an event with a duration.
func (t *tracer) slice(tid int, name, kind string, from, to int64, args map[string]any) {
	if to > from {
		dur := micros(to - from)
		t.emit(&event{Name: name, Phase: "X", Kind: kind, TS: micros(from), Dur: &dur, PID: t.pid, TID: tid, Args: args})
	}
}

func (t *tracer) title(r *Record) string {
	s := verb(r.Read) + " " + size(r.Total)
	if r.Tag != "" {
		s = r.Tag + ": " + s
	}
	return s
}

func (t *tracer) args(r *Record) map[string]any {
	args := map[string]any{"uid": r.UID, "kind": verb(r.Read), "peer": r.Path.Peer, "path": r.Path.Name, "bytes": r.Total, "bytes_done": r.Bytes,
		"ops": r.Ops, "replays": r.Replays, "code": t.name(r.Code)}
	if r.Tag != "" {
		args["tag"] = r.Tag
	}
	return args
}

func verb(read bool) string {
	if read {
		return "read"
	}
	return "write"
}

// size formats n bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if v == float64(uint64(v)) {
		return strconv.FormatUint(uint64(v), 10) + " " + units[i]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}
