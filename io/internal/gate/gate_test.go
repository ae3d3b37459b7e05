// SPDX-License-Identifier: MIT

package gate

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/logging/logtest"
	"mori/native/gpu/gputest"
)

func TestMain(m *testing.M) {
	logtest.Quiet()
	gputest.Main(m, (*testing.M).Run)
}

// A one is a Waiter for one gate.
type one struct {
	gone   atomic.Bool
	opened chan error
}

func newOne() *one { return &one{opened: make(chan error, 1)} }

func (w *one) Waits() bool    { return !w.gone.Load() }
func (w *one) Open(err error) { w.opened <- err }

// open waits until the gate of w opens.
func (w *one) open(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.opened:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the gate did not open in 20 s")
		return nil
	}
}

func setup(t *testing.T) (*Set, *device.Stream) {
	t.Helper()
	gputest.NeedEmulated(t)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := all[0].NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	s := &Set{Log: slog.Default()}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), stream.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, stream
}

// wait watches a gate for the work queued on a stream so far.
func (w *one) wait(t *testing.T, s *Set, on *device.Stream) {
	t.Helper()
	g, err := s.Arm(Stream(on))
	if err != nil {
		t.Fatal(err)
	}
	s.Watch(g, w)
}

func TestAGateOpensWhenTheGPUHasGotThere(t *testing.T) {
	s, stream := setup(t)
	release := gputest.Hold(t)
	w := newOne()
	w.wait(t, s, stream)
	select {
	case err := <-w.opened:
		t.Errorf("open while the GPU is held: %v", err)
	case <-time.After(5 * time.Millisecond):
	}
	release()
	if err := w.open(t); err != nil {
		t.Error(err)
	}
	for range 20 { // one at a time
		w.wait(t, s, stream)
		if err := w.open(t); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free[stream.Device()]); n == 0 || n > 2 {
		t.Errorf("%d gates for one waiter at a time", n)
	}
}

// A waiter that gives up is opened. Its gate has not happened and is not reused.
func TestAGateThatNobodyWaitsForIsTakenBack(t *testing.T) {
	s, stream := setup(t)
	release := gputest.Hold(t)
	defer release()
	w := newOne()
	w.gone.Store(true)
	w.wait(t, s, stream)
	if err := w.open(t); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free[stream.Device()]); n != 0 {
		t.Errorf("%d gates for reuse that have not happened", n)
	}
}

func TestAnErrorOfTheGPUOpensItsGates(t *testing.T) {
	s, stream := setup(t)
	release := gputest.Hold(t)
	defer release()
	w := newOne()
	w.wait(t, s, stream)
	gputest.Fail(t, "cuEventQuery=719")
	err := w.open(t)
	gputest.Fail(t, "")
	if err == nil {
		t.Error("opened without the error of the GPU")
	}
}
