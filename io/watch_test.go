// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// readable waits up to ms milliseconds until a descriptor is readable.
func readable(t *testing.T, fd, ms int) bool {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if err == nil {
			return n == 1
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

func TestAWatcherHearsOfEachStatusOnce(t *testing.T) {
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	var all []*Status
	for i := range uint64(5) {
		st := NewStatus()
		st.SetCode(CodeInProgress)
		st.Watch(w, i)
		all = append(all, st)
	}
	if readable(t, w.FD(), 0) {
		t.Error("readable before anything ended")
	}
	all[3].Update(CodeSuccess, "")
	all[1].Update(CodeErrRDMAOp, "broke")
	if !readable(t, w.FD(), 10000) || !slices.Equal(w.Take(), []uint64{3, 1}) {
		t.Error("two of five ended, and are not told")
	}
	if readable(t, w.FD(), 0) || len(w.Take()) != 0 {
		t.Error("told twice")
	}
	all[1].Watch(w, 99)
	if !readable(t, w.FD(), 10000) || !slices.Equal(w.Take(), []uint64{99}) {
		t.Error("what ended before is told at once")
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	all[0].Update(CodeSuccess, "") // the watcher is closed
	if len(w.Take()) != 0 {
		t.Error("a closed watcher took something")
	}
}

func TestTheEnginesDescriptor(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, _, s := pair(t, 1<<20, kind, nil)
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 0)) // before the first call of FD
		fd, err := a.FD()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := a.FD(); again != fd || err != nil {
			t.Errorf("another descriptor: %d, %v", again, err)
		}
		for i := range uint64(50) {
			st := s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 20}, i)
			for st.Code() == CodeInProgress {
				if !readable(t, fd, 10000) {
					t.Fatal("a transfer ended and the descriptor is silent, or it never ended")
				}
				var b [8]byte
				if _, err := unix.Read(fd, b[:]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.FD(); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
