// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/shm/internal/ring"
)

func sendOp(b []byte) *fabric.Op {
	return &fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: sys.AddrOf(b), Len: uint64(len(b))}}
}

func (e *fakeEndpoint) post(t testing.TB, ctx uint64, b []byte) {
	t.Helper()
	op := &fabric.Op{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: sys.AddrOf(b), Len: uint64(len(b))}, Ctx: ctx}
	if err := e.recv.Post(op); err != nil {
		t.Fatal(err)
	}
}

// entry waits for the next entry of the queue.
func (e *fakeEndpoint) entry(t testing.TB) fabric.ErrEntry {
	t.Helper()
	dst := make([]fabric.Completion, 1)
	n, err := e.cq.Wait(t.Context(), dst)
	if err == fabric.ErrAvail {
		var entry fabric.ErrEntry
		if err := e.cq.ReadErr(&entry); err != nil {
			t.Fatal(err)
		}
		return entry
	}
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return fabric.ErrEntry{Completion: dst[0]}
}

// numbered fills b with the contents of message i.
func numbered(b []byte, i int) []byte {
	for j := range b {
		b[j] = byte(j*7 + j>>8 + i)
	}
	return b
}

var messageSizes = []int{0, 1, 31, 32, 33, ring.InlineChunk, ring.InlineChunk + 1, 3 * ring.InlineChunk, ring.InlineMessage - 8, ring.InlineMessage, ring.InlineMessage + 1, 100000, 1 << 20}

func TestMessagesOfEverySize(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		src, _ := memory(t, 1<<20)
		dst, _ := memory(t, 1<<20)
		for lap := range 20 {
			for i, n := range messageSizes {
				ticket := conn.Ticket(lap*100 + i)
				b.post(t, uint64(i), dst)
				op := sendOp(numbered(src[:n], i+lap))
				op.Flags, op.Data = fabric.OpRemoteData, uint64(n)
				a.path.Send(ticket, op)
				if got := b.entry(t); got.Err != 0 || got.Ctx != uint64(i) || got.Len != uint64(n) || got.Data != uint64(n) || !bytes.Equal(dst[:n], src[:n]) {
					t.Fatalf("message of %d bytes: %+v", n, got)
				}
				if err := a.wait(t, ticket); err != nil {
					t.Fatalf("message of %d bytes: %v", n, err)
				}
			}
		}
	})
}

func TestMessagesOfManySegments(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		const n = 1 << 20
		src, from := memory(t, n)
		dst, to := memory(t, n)
		numbered(src, 1)
		cut := func(op *fabric.Op, addr, step uint64) {
			for off := uint64(0); off < n; off += step {
				op.More = append(op.More, fabric.Seg{Addr: addr + off, Len: min(step, n-off)}, fabric.Seg{})
			}
		}
		for i, step := range []uint64{n, 100000, 5000, 997} { // the last two send the address of their segment list
			send, recv := &fabric.Op{Kind: fabric.OpSend}, &fabric.Op{Kind: fabric.OpRecv}
			cut(send, from, step)
			cut(recv, to, 1+n/(step+3))
			clear(dst)
			if err := b.recv.Post(recv); err != nil {
				t.Fatal(err)
			}
			a.path.Send(conn.Ticket(i), send)
			if got := b.entry(t); got.Err != 0 || got.Len != n || !bytes.Equal(src, dst) {
				t.Fatalf("segments of %d: %+v", step, got)
			}
			if err := a.wait(t, conn.Ticket(i)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Messages of all kinds are sent before their receives until the ring is full. The rest waits with
// the sender.
func TestMessagesWaitForReceivesInOrder(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		const n = 400
		size := func(i int) int { return messageSizes[i*5%len(messageSizes)] % (1<<19 + i) }
		src, _ := memory(t, 1<<20)
		numbered(src, 0)
		for i := range n {
			a.path.Send(conn.Ticket(i), sendOp(src[i%7:][:size(i)]))
		}
		if !a.path.outbox.waits.Load() {
			t.Fatal("the ring was never full")
		}
		dst, _ := memory(t, 1<<20)
		for i := range n {
			b.post(t, uint64(i), dst)
			if got := b.entry(t); got.Err != 0 || got.Ctx != uint64(i) || got.Len != uint64(size(i)) || !bytes.Equal(dst[:size(i)], src[i%7:][:size(i)]) {
				t.Fatalf("message %d of %d bytes: %+v", i, size(i), got)
			}
		}
		for i := range n {
			if err := a.wait(t, conn.Ticket(i)); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
	})
}

func TestLongMessagesAreCut(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		src, _ := memory(t, 1<<20)
		dst, _ := memory(t, 1<<20)
		numbered(src, 3)
		for i, tt := range []struct{ send, space int }{{1, 0}, {5000, 4999}, {5000, 1}, {1 << 20, 5}, {1 << 20, 1<<20 - 8}} {
			clear(dst)
			b.post(t, 1, dst[:tt.space])
			a.path.Send(conn.Ticket(i), sendOp(src[:tt.send]))
			got := b.entry(t)
			if got.Err != fabric.ErrTruncated || got.Len != uint64(tt.space) || !bytes.Equal(dst[:tt.space], src[:tt.space]) {
				t.Fatalf("%d bytes into %d: %+v", tt.send, tt.space, got)
			}
			if bytes.ContainsFunc(dst[tt.space:], func(r rune) bool { return r != 0 }) {
				t.Fatalf("%d bytes into %d: more was written", tt.send, tt.space)
			}
			if err := a.wait(t, conn.Ticket(i)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDeliveredMessagesEndWhenTheyArePlaced(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		src, _ := memory(t, 64)
		plain, delivered := sendOp(src), sendOp(src)
		delivered.Flags = fabric.OpDeliveryComplete
		a.path.Send(1, delivered)
		a.path.Send(2, plain)
		if err := a.wait(t, 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if !a.running(1) {
			t.Fatal("a message ended before its receive was posted")
		}
		dst, _ := memory(t, 64)
		b.post(t, 1, dst)
		if err := a.wait(t, 1); err != nil {
			t.Fatal(err)
		}
	})
}

// The receiver does not poll its queue here. Only the peer's frameWake wakes it.
func TestMessagesArriveWithoutReaders(t *testing.T) {
	for name, hook := range map[string]bool{"nobody": false, "a hook": true} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
				notified := make(chan struct{}, 1000)
				if hook {
					b.cq.OnReady(func() {
						var done [4]fabric.Completion
						n, _ := b.cq.Read(done[:])
						for range n {
							notified <- struct{}{}
						}
					})
				}
				src, _ := memory(t, 1<<20)
				dst, _ := memory(t, 1<<20)
				for i := range 40 {
					n := messageSizes[i%len(messageSizes)]
					op := sendOp(numbered(src[:n], i))
					op.Flags = fabric.OpDeliveryComplete
					b.post(t, 1, dst)
					a.path.Send(conn.Ticket(i), op)
					if err := a.wait(t, conn.Ticket(i)); err != nil || !bytes.Equal(src[:n], dst[:n]) {
						t.Fatalf("message of %d bytes: %v", n, err)
					}
					if hook {
						<-notified
					}
				}
			})
		})
	}
}

// A reader that spins requests no wakeup. After it stops, messages still arrive.
func TestReaderThatStopsSpinning(t *testing.T) {
	a, b := newPair(t, wayCMA)
	done := make([]fabric.Completion, 1)
	for !b.path.inbox.spins.Load() {
		_, _ = b.cq.Read(done)
	}
	src, _ := memory(t, 64)
	dst, _ := memory(t, 64)
	b.post(t, 1, dst)
	op := sendOp(src)
	op.Flags = fabric.OpDeliveryComplete
	a.path.Send(1, op)
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryThatIsGoneFailsTheMessage(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		src, _ := memory(t, 4<<20)
		dst, _ := memory(t, 4<<20)
		hole := func(m []byte, prot int) {
			if err := unix.Mprotect(m[1<<20:2<<20], prot); err != nil {
				t.Fatal(err)
			}
		}
		const open, shut = unix.PROT_READ | unix.PROT_WRITE, unix.PROT_NONE
		ticket := conn.Ticket(0)
		for _, n := range []int{100, ring.InlineMessage, 1 << 19} {
			at := 1<<20 - n/2
			ticket++
			hole(src, shut)
			b.post(t, 1, dst)
			a.path.Send(ticket, sendOp(src[at:][:n]))
			if err := a.wait(t, ticket); !errors.Is(err, syscall.EFAULT) {
				t.Errorf("%d bytes that are gone: %v", n, err)
			}
			hole(src, open)
			if n <= ring.InlineChunk { // nothing was sent
				b.recv.Cancel(1)
			}
			if got := b.entry(t); got.Err == 0 {
				t.Errorf("%d bytes that are gone were received: %+v", n, got)
			}
			ticket++
			hole(dst, shut)
			b.post(t, 2, dst[at:][:n])
			a.path.Send(ticket, sendOp(src[at:][:n]))
			if got := b.entry(t); got.Err != fabric.Errno(syscall.EFAULT) {
				t.Errorf("%d bytes into memory that is gone: %+v", n, got)
			}
			hole(dst, open)
			if err := a.wait(t, ticket); err != nil && !errors.Is(err, syscall.EFAULT) {
				t.Errorf("%d bytes into memory that is gone: %v", n, err)
			}
		}
		b.post(t, 3, dst)
		a.path.Send(100, sendOp(src))
		if got := b.entry(t); got.Err != 0 || a.wait(t, 100) != nil {
			t.Fatalf("afterwards: %+v", got)
		}
	})
}
