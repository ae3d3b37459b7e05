// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"mori/io/internal/errs"
)

// readable reports whether fd is readable now.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestAWatcherIsReadableWhileThereAreTokens(t *testing.T) {
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if readable(t, w.FD()) {
		t.Error("readable without a token")
	}
	w.Add(3)
	w.Add(1)
	if !readable(t, w.FD()) || !slices.Equal(w.Take(), []uint64{3, 1}) {
		t.Error("two tokens are not there to take")
	}
	if readable(t, w.FD()) || len(w.Take()) != 0 {
		t.Error("tokens are taken twice")
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if w.Add(5); len(w.Take()) != 0 {
		t.Error("a closed watcher took a token")
	}
}

func TestEndingsOpenTheirDescriptorWhenAsked(t *testing.T) {
	var n Endings
	n.Add() // before the first call of FD
	fd, err := n.FD()
	if err != nil || readable(t, fd) {
		t.Fatalf("a new descriptor is readable, or %v", err)
	}
	if n.Add(); !readable(t, fd) {
		t.Error("a transfer ended, and the descriptor is not readable")
	}
	if again, err := n.FD(); again != fd || err != nil {
		t.Errorf("another descriptor: %d, %v", again, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	n.Add()
	if _, err := n.FD(); !errors.Is(err, errs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
