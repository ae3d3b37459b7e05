// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"mori/core/device"
	"mori/native/gpu/gputest"
)

// A gpuSide is an engine whose region, in pinned host memory, is written by a GPU.
type gpuSide struct {
	*side
	dev    *device.Device
	stream *device.Stream
	source *device.Memory // full of mark
}

const mark = 0x5a

func newGPUSide(t *testing.T, key string, size int, kind BackendType, cfg *BackendConfig) *gpuSide {
	t.Helper()
	gputest.Need(t)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	g := &gpuSide{dev: all[0]}
	if g.source, err = g.dev.Alloc(uint64(size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, g.source.Close()) })
	if g.stream, err = g.dev.NewStream(device.Normal); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, g.stream.Close()) })
	if err := g.stream.Set(g.source.Addr(), mark, uint64(size)); err != nil {
		t.Fatal(err)
	}
	if err := g.stream.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(key, EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	g.side = newSideOf(t, e, size, kind, cfg)
	pin, err := g.dev.RegisterHost(g.desc.Data, uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pin.Close()) })
	return g
}

func closed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// produce makes the GPU fill the region.
func (g *gpuSide) produce(t *testing.T) {
	t.Helper()
	if err := g.stream.Copy(g.desc.Data, g.source.Addr(), g.desc.Size); err != nil {
		t.Fatal(err)
	}
}

func (g *gpuSide) event(t *testing.T) *device.Event {
	t.Helper()
	ev, err := g.dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, ev.Close()) })
	if err := ev.Record(g.stream); err != nil {
		t.Fatal(err)
	}
	return ev
}

func marked(b []byte) bool { return bytes.Count(b, []byte{mark}) == len(b) }

const afterSize = 1 << 20

func afterPair(t *testing.T, kind BackendType, cfg *BackendConfig) (a *gpuSide, b *side, s *Session) {
	t.Helper()
	a = newGPUSide(t, "a", afterSize, kind, cfg)
	b = newSide(t, "b", afterSize, kind, cfg)
	return a, b, meet(t, a.side, b)
}

func (s *Session) writeAfter(a After, n uint64) *Status {
	return s.Submit(&Request{Write: true, After: a, Local: []uint64{0}, Remote: []uint64{0}, Sizes: []uint64{n}, UID: s.AllocateTransferUID()})
}

// TestATransferWaitsForTheGPU checks that a transfer sends the bytes that the GPU had yet to write,
// and that no later transfer succeeds first.
func TestATransferWaitsForTheGPU(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := afterPair(t, kind, nil)
		release := gputest.Hold(t)
		a.produce(t)
		onEvent := s.writeAfter(AfterEvent(a.event(t)), afterSize/2)
		onStream := s.writeAfter(AfterStream(a.stream), afterSize)
		later := s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 99)
		time.Sleep(20 * time.Millisecond)
		for _, st := range []*Status{onEvent, onStream, later} {
			if st.Code() != CodeInProgress {
				t.Fatalf("%v before the GPU has done anything: %s", st.Code(), st.Message())
			}
		}
		if _, stages := s.pair.Pending.Open(time.Now(), 8); len(stages) == 0 || !strings.Contains(stages[0], "GPU") {
			t.Errorf("transfers stand at %q", stages)
		}
		if marked(b.mem[:8]) {
			t.Fatal("bytes that nobody has made yet have arrived")
		}
		release()
		for _, st := range []*Status{onEvent, onStream, later} {
			succeed(t, st)
		}
		if !marked(b.mem) {
			t.Error("other bytes arrived")
		}
	})
}

// TestTheBytesOfTheStreamArrive checks the same on any GPU, round after round. Events are recorded
// again or closed right after the call.
func TestTheBytesOfTheStreamArrive(t *testing.T) {
	if !gputest.Real() {
		gputest.Delay(t, 7)
	}
	a, b, s := afterPair(t, BackendRDMA, nil)
	ev, err := a.dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { closed(t, ev.Close()) }()
	for round := range 20 {
		clear(b.mem)
		if err := a.stream.Set(a.source.Addr(), byte(round+1), afterSize); err != nil {
			t.Fatal(err)
		}
		a.produce(t)
		after := AfterStream(a.stream)
		if round%2 == 0 {
			closed(t, ev.Record(a.stream))
			after = AfterEvent(ev)
		}
		st := s.writeAfter(after, afterSize)
		closed(t, ev.Record(a.stream))
		succeed(t, st)
		if bytes.Count(b.mem, []byte{byte(round + 1)}) != afterSize {
			t.Fatalf("round %d: other bytes arrived", round)
		}
	}
}

// TestAReadWaitsForTheGPU checks that a read writes nothing to memory that the GPU still uses.
func TestAReadWaitsForTheGPU(t *testing.T) {
	a, b, s := afterPair(t, BackendRDMA, nil)
	fill(b.mem, 3)
	release := gputest.Hold(t)
	a.produce(t)
	st := s.Submit(&Request{After: AfterStream(a.stream), Local: []uint64{0}, Remote: []uint64{0}, Sizes: []uint64{afterSize}, UID: 1})
	time.Sleep(10 * time.Millisecond)
	if st.Code() != CodeInProgress || bytes.Equal(a.mem[:64], b.mem[:64]) {
		t.Fatalf("%v before the GPU has done anything", st.Code())
	}
	release()
	succeed(t, st)
	if !bytes.Equal(a.mem, b.mem) {
		t.Error("the GPU wrote after the read")
	}
}

// TestWhatWaitsForAGPUEnds checks every way in which a waiting transfer can end other than by its
// event. None of them affects other transfers: the path stays open.
func TestWhatWaitsForAGPUEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, a *gpuSide, b *side, s *Session, st *Status)
		code StatusCode
		text string
	}{
		"canceled": {func(t *testing.T, _ *gpuSide, _ *side, _ *Session, st *Status) { closed(t, st.Cancel(deadline(t))) }, CodeErrBadState, "canceled"},
		"too late": {func(*testing.T, *gpuSide, *side, *Session, *Status) {}, CodeErrRDMAOp, "deadline of 150 ms"},
		"its peer is forgotten": {func(t *testing.T, a *gpuSide, b *side, _ *Session, _ *Status) {
			closed(t, a.DeregisterRemoteEngine(b.Desc()))
		}, CodeErrBadState, "deregistered"},
		"its engine is closed": {func(t *testing.T, a *gpuSide, _ *side, _ *Session, _ *Status) { closed(t, a.Close()) }, CodeErrBadState, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, s := afterPair(t, BackendRDMA, nil)
			release := gputest.Hold(t)
			a.produce(t)
			before := s.plan.Load()
			held := s
			if name == "too late" {
				held = s.WithDeadline(150 * time.Millisecond)
			}
			st := held.writeAfter(AfterStream(a.stream), afterSize)
			c.end(t, a, b, s, st)
			if code := st.Wait(deadline(t)); code != c.code || !strings.Contains(st.Message(), c.text) || !strings.Contains(st.Message(), "waiting for the GPU") {
				t.Errorf("%v: %s", code, st.Message())
			}
			if s.Alive() {
				succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 5))
				if s.plan.Load() != before {
					t.Error("the path was closed for a transfer that was not on it")
				}
			}
			release()
			closed(t, a.stream.Wait(deadline(t)))
			if marked(b.mem[:8]) {
				t.Error("bytes of a transfer that has ended have arrived")
			}
		})
	}
}

// TestAPathBreaksMeanwhile checks that a transfer uses another path if its own broke while it
// waited.
func TestAPathBreaksMeanwhile(t *testing.T) {
	a, b, s := afterPair(t, BackendRDMA, nil)
	release := gputest.Hold(t)
	a.produce(t)
	st := s.writeAfter(AfterStream(a.stream), afterSize)
	s.plan.Load().path.Close(ErrBadState)
	release()
	succeed(t, st)
	if !marked(b.mem) {
		t.Error("other bytes arrived")
	}
}

// TestTheGPUFails checks that the status has the driver's error text.
func TestTheGPUFails(t *testing.T) {
	a, _, s := afterPair(t, BackendRDMA, nil)
	release := gputest.Hold(t)
	a.produce(t)
	st := s.writeAfter(AfterStream(a.stream), afterSize)
	gputest.Fail(t, "cuEventQuery=719")
	if code := st.Wait(deadline(t)); code != CodeErrGPUOp || !strings.Contains(st.Message(), "(719)") {
		t.Errorf("%v: %s", code, st.Message())
	}
	gputest.Fail(t, "cuEventRecord=201")
	if st := s.writeAfter(AfterStream(a.stream), afterSize); st.Code() != CodeErrGPUOp || !strings.Contains(st.Message(), "wait") {
		t.Errorf("%v: %s", st.Code(), st.Message())
	}
	gputest.Fail(t, "")
	release()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	succeed(t, s.writeAfter(AfterStream(a.stream), afterSize))
	closed(t, a.stream.Wait(ctx))
}

// TestATransferMayTakeTheGateOfOneThatBegins posts many transfers while earlier ones begin, so that
// their gates are reused.
func TestATransferMayTakeTheGateOfOneThatBegins(t *testing.T) {
	a, _, s := afterPair(t, BackendTCP, nil)
	for round := range 200 {
		var sent []*Status
		for range 8 {
			sent = append(sent, s.writeAfter(AfterStream(a.stream), 8))
		}
		for i, st := range sent {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if code := st.Wait(ctx); code != CodeSuccess {
				t.Fatalf("round %d, transfer %d: %v: %s", round, i, code, st.Message())
			}
			cancel()
		}
	}
}
