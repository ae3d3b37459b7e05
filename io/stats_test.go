// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// onlyPath returns the statistics of the only path to the only peer.
func onlyPath(t *testing.T, e *Engine) PathStats {
	t.Helper()
	s := e.Stats()
	if len(s.Peers) != 1 || len(s.Peers[0].Paths) != 1 {
		t.Fatalf("want one path to one peer: %+v", s.Peers)
	}
	return s.Peers[0].Paths[0]
}

func TestStatsCountByPeerPathAndOperation(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := pair(t, 1<<20, kind, nil)
		for uid := range uint64(10) {
			succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 20}, uid))
		}
		for uid := range uint64(3) {
			succeed(t, s.Read([]uint64{0, 4096}, []uint64{8192, 0}, []uint64{100, 0}, uid))
		}
		if c := s.Write([]uint64{1 << 20}, []uint64{0}, []uint64{1}, 1).Code(); c != CodeErrInvalidArgs {
			t.Fatal(c)
		}
		p := onlyPath(t, a.Engine)
		if p.Path != s.Describe().Path || !p.Open || p.Backend != kind.String() {
			t.Errorf("path %+v", p)
		}
		if o := p.Write; o.Transfers != 10 || o.Bytes != 10<<20 || o.InFlight != 0 || o.Failed != 0 || o.Latency.Count != 10 || o.Latency.P50US <= 0 {
			t.Errorf("writes %+v", o)
		}
		if o := p.Read; o.Transfers != 3 || o.Bytes != 300 || o.InFlight != 0 {
			t.Errorf("reads %+v", o)
		}
		if want := (Counters{Reads: 3, Writes: 10, ReadBytes: 300, WriteBytes: 10 << 20, Refused: 1}); a.Stats().Totals != want || a.Describe().Counters != want {
			t.Errorf("totals %+v, want %+v", a.Stats().Totals, want)
		}
		until(t, "throughput", func() bool { return onlyPath(t, a.Engine).Write.BytesPerSecond10 > 0 })
		if s := b.Stats(); len(s.Peers) != 1 || !s.Peers[0].Known || len(s.Peers[0].Paths) != 0 {
			t.Errorf("the target, which submitted nothing: %+v", s.Peers)
		}
	})
}

func TestStatsCountFailuresByCode(t *testing.T) {
	w := newWired(t, 4096, nil)
	if err := w.b.DeregisterMemory(w.b.desc); err != nil {
		t.Fatal(err)
	}
	w.s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1).Wait(deadline(t))
	o := onlyPath(t, w.a.Engine).Write
	if o.Failed != 1 || o.Failures["ERR_NOT_FOUND"] != 1 || o.Canceled != 0 || o.Transfers != 0 || o.InFlight != 0 || o.Latency.Count != 0 {
		t.Errorf("%+v", o)
	}
}

func TestStatsCountReplaysAtThePathThatBroke(t *testing.T) {
	const size = 4 << 20
	w := newWired(t, size, nil)
	w.shm.cutAfter(10)
	succeed(t, w.s.Write([]uint64{0}, []uint64{0}, []uint64{size}, 1))
	paths := w.a.Stats().Peers[0].Paths
	if len(paths) != 2 || paths[0].Path != "shm/memmove" || paths[0].Open || !paths[1].Open {
		t.Fatalf("%+v", paths)
	}
	shm, tcp := paths[0].Write, paths[1].Write
	if shm.Replays != 1 || shm.Transfers != 0 || shm.InFlight != 0 || shm.Bytes == 0 {
		t.Errorf("the path that broke: %+v", shm)
	}
	if tcp.Replays != 0 || tcp.Transfers != 1 || tcp.InFlight != 0 || tcp.Bytes+shm.Bytes != size {
		t.Errorf("the path that went on, %d bytes: %+v", tcp.Bytes+shm.Bytes, tcp)
	}
	if r := w.a.Stats().Slowest[0]; r.Replays != 1 || r.Path != "tcp/memmove" || r.BytesDone != size || r.Ops != 64 {
		t.Errorf("record %+v", r)
	}
}

// cutAll breaks every path of w at its next op and prevents new ones.
func (w *wired) cutAll() {
	for _, x := range []*wire{w.shm, w.tcp} {
		x.down.Store(true)
		x.cutAfter(0)
	}
}

func TestWhatIsStuckIsSeenAndTraced(t *testing.T) {
	w := newWired(t, 4096, nil)
	w.cutAll()
	st := writeTagged(w.s, "req-7", 4096, 33)
	until(t, "the transfer is listed as stuck", func() bool { return len(w.a.Stats().Stuck) == 1 })
	s := w.a.Stats()
	if i := s.Stuck[0]; i.Peer != "b" || i.UID != 33 || i.Tag != "req-7" || i.BytesDone != 0 || i.Bytes != 4096 || i.TookUS < 1e6 || i.Code != "IN_PROGRESS" ||
		!strings.Contains(i.Stage, "waiting for a path") || s.InFlight != 1 {
		t.Errorf("%d in flight, %+v", s.InFlight, i)
	}
	var trace bytes.Buffer
	if err := w.a.WriteTrace(&trace); err != nil || !strings.Contains(trace.String(), `"code":"IN_PROGRESS"`) {
		t.Errorf("%v: %s", err, trace.String())
	}
	if err := st.Cancel(deadline(t)); err != nil && !strings.Contains(err.Error(), "confirm") {
		t.Fatal(err)
	}
	s = w.a.Stats()
	if len(s.Stuck) != 0 || s.InFlight != 0 || s.Totals.Canceled != 1 || s.Totals.Failed != 1 || s.Slowest[0].Code != "ERR_BAD_STATE" {
		t.Errorf("after the cancel: %+v", s)
	}
	if !strings.Contains(st.Message(), `tag "req-7"`) {
		t.Errorf("message without the tag: %s", st.Message())
	}
}

func TestStatsAreJSONWithoutNull(t *testing.T) {
	a, _, s := pair(t, 64, BackendTCP, nil)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
	text, err := json.Marshal(a.Stats())
	if err != nil || strings.Contains(strings.ReplaceAll(string(text), `"below_us":null`, ""), "null") {
		t.Errorf("%v: %s", err, text)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := a.Stats().Totals.Writes; got != 1 {
		t.Errorf("%d writes after Close, want 1", got)
	}
}
