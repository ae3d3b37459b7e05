// SPDX-License-Identifier: MIT

package emu_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
	"mori/core/internal/sys"
)

// fails waits for the next completion and wants it to be an error.
func fails(t *testing.T, p *mlx5test.Poster, want mlx5.Syndrome) {
	t.Helper()
	err := p.Until(p.View.Reserved, patience)
	var w *mlx5.WorkError
	if !errors.As(err, &w) || w.Syndrome != want {
		t.Fatalf("completion: %v, want %v", err, want)
	}
}

func state(t *testing.T, q *mlx5.Queue, want uint32) {
	t.Helper()
	got, err := q.State()
	if err != nil || got != want {
		t.Errorf("state %s (%v), want %s", mlx5.StateName(got), err, mlx5.StateName(want))
	}
}

// TestErrors ends one entry by each kind of mistake, and wants the entries behind it flushed.
func TestErrors(t *testing.T) {
	outside := func(s mlx5test.Span, by uint64) mlx5test.Span { s.Addr += by; return s }
	for _, c := range []struct {
		name string
		post func(a, b *side) error
		want mlx5.Syndrome
	}{
		{"local memory that is not registered", func(a, b *side) error {
			_, err := a.post.Write(outside(a.Span(0, 100), 1<<30), b.Span(0, 0), 0)
			return err
		}, mlx5.SyndromeProtection},
		{"a key that no local region has", func(a, b *side) error {
			s := a.Span(0, 100)
			s.Key ^= 1
			_, err := a.post.Write(s, b.Span(0, 0), 0)
			return err
		}, mlx5.SyndromeProtection},
		{"a write behind the peer's region", func(a, b *side) error {
			_, err := a.post.Write(a.Span(0, 100), b.Span(len(b.Mem)-99, 0), 0)
			return err
		}, mlx5.SyndromeRemoteAccess},
		{"a read with a wrong key", func(a, b *side) error {
			s := b.Span(0, 0)
			s.Key += 256
			_, err := a.post.Read(s, a.Span(0, 8), 0)
			return err
		}, mlx5.SyndromeRemoteAccess},
		{"an atomic that is not aligned", func(a, b *side) error {
			_, err := a.post.Atomic(mlx5.OpFetchAdd, mlx5.Atomic{Width: 8}, b.Span(4, 8), a.Span(0, 8), 0)
			return err
		}, mlx5.SyndromeRemoteInvalid},
		{"an opcode that there is not", func(a, _ *side) error {
			_, err := a.post.Post(mlx5.Control{Opcode: 0x3f}, make([]byte, 16))
			return err
		}, mlx5.SyndromeOperation},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, setup{})
			a.post.NoBell = true
			if err := c.post(a, b); err != nil {
				t.Fatal(err)
			}
			if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), 0); err != nil { // not signalled
				t.Fatal(err)
			}
			before := a.post.View.Reserved
			a.post.Ring()
			fails(t, a.post, c.want)
			fails(t, a.post, mlx5.SyndromeFlush)
			if a.post.View.Completed != before {
				t.Errorf("%d blocks are complete, want %d", a.post.View.Completed, before)
			}
			state(t, a.Queue, mlx5.StateERR)
			if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), 0); err != nil {
				t.Fatal(err)
			}
			a.post.Ring()
			fails(t, a.post, mlx5.SyndromeFlush)
		})
	}
}

// TestRightsThatWereNotGiven has a region for each right that a peer needs, without it.
func TestRightsThatWereNotGiven(t *testing.T) {
	for name, access := range map[string]mlx5.Access{
		"write": mlx5.AccessRemoteRead | mlx5.AccessAtomic, "read": mlx5.AccessRemoteWrite | mlx5.AccessAtomic,
		"atomic": mlx5.AccessRemoteWrite | mlx5.AccessRemoteRead,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, setup{})
			r, err := b.dev.Register(sys.AddrOf(b.Mem), 4096, access|mlx5.AccessLocalWrite)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			to := mlx5test.Span{Addr: r.View().Addr, Key: r.View().RKey}
			switch name {
			case "write":
				_, err = a.post.Write(a.Span(0, 8), to, 0)
			case "read":
				_, err = a.post.Read(to, a.Span(0, 8), 0)
			case "atomic":
				_, err = a.post.Atomic(mlx5.OpFetchAdd, mlx5.Atomic{Width: 8, Swap: 1}, to, a.Span(0, 8), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			fails(t, a.post, mlx5.SyndromeRemoteAccess)
		})
	}
}

// TestPeerIsNotReady: a send waits for a receive entry, forever or as often as was said.
func TestPeerIsNotReady(t *testing.T) {
	queue := mlx5.QueueConfig{SQLog: 4, RQLog: 2}
	t.Run("it becomes ready", func(t *testing.T) {
		a, b := pair(t, setup{queue: queue, path: mlx5.PathConfig{MinRNRTimer: 1}})
		at, err := a.post.Send(nil, signalled, a.Span(0, 100))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // many of its timers
		if _, ok := a.post.Poll(); ok {
			t.Fatal("the send is complete before there was a receive entry")
		}
		if err := b.recv.Post(b.Span(0, 100)); err != nil {
			t.Fatal(err)
		}
		if err := a.post.Until(at+1, patience); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("it does not", func(t *testing.T) {
		a, _ := pair(t, setup{queue: queue, path: mlx5.PathConfig{MinRNRTimer: 1, RNRRetries: 3}})
		if _, err := a.post.Send(nil, 0, a.Span(0, 100)); err != nil {
			t.Fatal(err)
		}
		fails(t, a.post, mlx5.SyndromeRNR)
	})
	t.Run("its buffer is too small", func(t *testing.T) {
		a, b := pair(t, setup{queue: queue})
		if err := b.recv.Post(b.Span(0, 99)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.post.Send(nil, 0, a.Span(0, 100)); err != nil {
			t.Fatal(err)
		}
		fails(t, a.post, mlx5.SyndromeRemoteInvalid)
		if _, err := b.recv.Next(patience); err == nil || !strings.Contains(err.Error(), mlx5.SyndromeLength.String()) {
			t.Errorf("receive: %v, want %v", err, mlx5.SyndromeLength)
		}
		state(t, b.Queue, mlx5.StateERR)
	})
}

// TestPeerIsGone: nobody answers, and the retries end.
func TestPeerIsGone(t *testing.T) {
	a, b := pair(t, setup{opts: emu.Options{Wire: "unix"}, path: mlx5.PathConfig{AckTimeout: 9, Retries: 2}})
	if err := b.Queue.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.post.Write(a.Span(0, 100), b.Span(0, 0), 0); err != nil {
		t.Fatal(err)
	}
	fails(t, a.post, mlx5.SyndromeRetry)
}

// TestFail stops a queue pair from outside: receive entries are flushed, too.
func TestFail(t *testing.T) {
	a, _ := pair(t, setup{queue: mlx5.QueueConfig{SQLog: 4, RQLog: 2}})
	if err := a.recv.Post(a.Span(0, 100)); err != nil {
		t.Fatal(err)
	}
	if err := a.Queue.Fail(); err != nil {
		t.Fatal(err)
	}
	_, err := a.recv.Next(patience)
	var w *mlx5.WorkError
	if !errors.As(err, &w) || w.Syndrome != mlx5.SyndromeFlush {
		t.Errorf("receive: %v, want %v", err, mlx5.SyndromeFlush)
	}
}

// TestErrorAtEntry: the chaos ends the entry that it was given.
func TestErrorAtEntry(t *testing.T) {
	a, b := pair(t, setup{opts: emu.Options{Chaos: emu.Chaos{FailAt: 5, FailWith: mlx5.SyndromeRemoteOp}}})
	for i := range 4 {
		at, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled)
		if err == nil {
			err = a.post.Until(at+1, patience)
		}
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled); err != nil {
		t.Fatal(err)
	}
	fails(t, a.post, mlx5.SyndromeRemoteOp)
}

// TestOverrun: completions that nobody reads break the completion queue and its queue pairs.
func TestOverrun(t *testing.T) {
	a, b := pair(t, setup{queue: mlx5.QueueConfig{SQLog: 6, CQLog: 2}})
	for range 6 {
		if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if s, err := a.Queue.State(); err != nil || s == mlx5.StateERR {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the queue pair works on")
		}
	}
	if v := a.nic.Violations(); len(v) != 1 || !strings.Contains(v[0], "overran") {
		t.Errorf("violations: %q", v)
	}
}

// TestLongestEntry: one that takes 16 blocks, over the ring's end.
func TestLongestEntry(t *testing.T) {
	a, b := pair(t, setup{queue: mlx5.QueueConfig{SQLog: 5}})
	data := make([]byte, (mlx5.MaxSegments-2)*mlx5.SegmentBytes-4)
	for round := range 7 { // 17 blocks each, of 32
		for i := range data {
			data[i] = byte(i + round*31)
		}
		at, err := a.post.WriteInline(data, b.Span(round, 0), signalled)
		if err == nil {
			err = a.post.Until(at+16, patience)
		}
		if err == nil {
			err = a.post.Quiet(patience)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Mem[round:][:len(data)], data) {
			t.Fatalf("round %d: other bytes came", round)
		}
	}
	if _, err := a.post.WriteInline(append(data, 1), b.Span(0, 0), 0); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("an entry that is too long: %v", err)
	}
	clean(t, a, b)
}

// TestCollapsed: one entry holds all completions, and the count of blocks is right past 65536 of
// them.
func TestCollapsed(t *testing.T) {
	a, b := pair(t, setup{queue: mlx5.QueueConfig{SQLog: 8, Collapsed: true}})
	inline := make([]byte, 50) // two blocks
	for a.post.View.Reserved < 70000 {
		var last uint64
		for range 60 {
			at, err := a.post.WriteInline(inline, b.Span(0, 0), signalled)
			if err != nil {
				t.Fatal(err)
			}
			last = at + 2
		}
		if err := a.post.Until(last, patience); err != nil {
			t.Fatal(err)
		}
		if a.post.View.Completed != a.post.View.Reserved {
			t.Fatalf("%d of %d blocks are complete", a.post.View.Completed, a.post.View.Reserved)
		}
	}
	clean(t, a, b)
}

// TestMistakesOfPosters: what a real NIC would get wrong in silence ends in an error and is noted.
func TestMistakesOfPosters(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong func(a *side, entry []byte)
		note  string
	}{
		{"an index that is not the entry's place", func(_ *side, e []byte) { e[2]++ }, "index 1"},
		{"another queue pair's number", func(_ *side, e []byte) { e[6]++ }, "entry of queue pair"},
		{"more segments than were published", func(_ *side, e []byte) { e[7] = 9 }, "9 segments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, setup{})
			a.post.NoBell = true
			if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled); err != nil {
				t.Fatal(err)
			}
			c.wrong(a, sys.Bytes(a.post.View.SQ, mlx5.BlockBytes))
			a.post.Ring()
			fails(t, a.post, mlx5.SyndromeOperation)
			if v := a.nic.Violations(); len(v) == 0 || !strings.Contains(v[0], c.note) {
				t.Errorf("violations: %q, want %q", v, c.note)
			}
		})
	}
	t.Run("a doorbell without a record", func(t *testing.T) {
		a, b := pair(t, setup{})
		a.post.NoBell = true
		if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled); err != nil {
			t.Fatal(err)
		}
		bell := binary.LittleEndian.Uint64(sys.Bytes(a.post.View.SQ, 8))
		sys.Store64(a.post.View.UAR, bell)
		time.Sleep(5 * time.Millisecond)
		if _, ok := a.post.Poll(); ok {
			t.Error("the entry was carried out, and the record did not tell of it")
		}
	})
	t.Run("the receive counter moves and there is no receive queue", func(t *testing.T) {
		a, _ := pair(t, setup{})
		sys.Store32(a.post.View.DBR, 1)
		for end := time.Now().Add(patience); len(a.nic.Violations()) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nobody noticed")
			}
		}
	})
}

// TestMemoryThatIsGone: what cannot be touched any more is an error of the work, and not the end of
// the process. Its pages are kept, without rights: in place of what is unmapped this process may
// soon have something else, which the NIC would then write to, and say nothing.
func TestMemoryThatIsGone(t *testing.T) {
	for _, local := range []bool{true, false} {
		a, b := pair(t, setup{})
		gone, err := sys.Alloc(os.Getpagesize())
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.dev.Register(sys.AddrOf(gone), uint64(len(gone)), mlx5.AccessAll)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s := mlx5test.Span{Addr: sys.AddrOf(gone), N: 8, Key: r.View().LKey}
		if err := syscall.Mprotect(gone, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sys.Free(gone) }()
		want := mlx5.SyndromeRemoteAccess
		if local {
			_, err = a.post.Write(s, b.Span(0, 0), 0)
			want = mlx5.SyndromeProtection
		} else {
			_, err = a.post.Write(a.Span(0, 8), s, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		fails(t, a.post, want)
	}
}
