// SPDX-License-Identifier: MIT

package util

import (
	"context"
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
)

func TestEQ(t *testing.T) {
	if _, err := NewEQ(0); !errors.Is(err, fabric.ErrInvalid) {
		t.Fatalf("size 0: %v", err)
	}
	q, err := NewEQ(1)
	if err != nil {
		t.Fatal(err)
	}
	(*EQ)(nil).Push(fabric.Event{})
	if _, err := q.Read(); err != fabric.ErrAgain {
		t.Fatalf("empty: %v", err)
	}
	for range 2 {
		q.Push(fabric.Event{Kind: fabric.EventConnected})
		q.Push(fabric.Event{Kind: fabric.EventShutdown, Err: fabric.ErrShutdown})
	}
	for i := range 4 {
		e, err := q.Wait(testContext(t))
		if err != nil || e.Kind != fabric.EventConnected+fabric.EventKind(i%2) {
			t.Fatalf("event %d: %v, %v", i, e, err)
		}
	}
	short, cancel := context.WithTimeout(testContext(t), 5*time.Millisecond)
	defer cancel()
	if _, err := q.Wait(short); err != context.DeadlineExceeded {
		t.Fatalf("nothing comes: %v", err)
	}
}

func TestEQClose(t *testing.T) {
	q, err := NewEQ(4)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Bind(); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); !errors.Is(err, fabric.ErrBusy) {
		t.Fatalf("bound: %v", err)
	}
	q.Unbind()
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := q.Wait(testContext(t))
			done <- err
		}()
	}
	for range 2 {
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	q.Push(fabric.Event{})
	for range 2 {
		if err := <-done; err != fabric.ErrClosed {
			t.Fatalf("parked reader: %v", err)
		}
	}
	if err := q.Bind(); !errors.Is(err, fabric.ErrClosed) {
		t.Fatalf("bind: %v", err)
	}
}
