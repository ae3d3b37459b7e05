// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/shm/internal/ring"
)

func TestStopEndsMessages(t *testing.T) {
	cause := fmt.Errorf("test: %w", fabric.ErrShutdown)
	for name, atSender := range map[string]bool{"sender": true, "receiver": false} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
				src, _ := memory(t, 16<<20)
				dst, _ := memory(t, 16<<20)
				const early, rest = 3, 60
				for range early + 1 {
					b.post(t, 1, dst)
				}
				for i := range early {
					a.path.Send(conn.Ticket(i), sendOp(src[:8]))
				}
				for i := range rest {
					a.path.Send(conn.Ticket(early+i), sendOp(src[:len(src)>>(i%3*10)]))
				}
				if atSender {
					a.Fail(cause)
				} else {
					b.Fail(cause)
				}
				<-a.stopped
				<-b.stopped
				b.recv.End(fabric.ErrShutdown, "") // as the stream does
				for i := range early + rest {
					if a.running(conn.Ticket(i)) {
						t.Fatalf("message %d still runs", i)
					}
				}
				clear(dst)
				for i := range early {
					if got := b.entry(t); got.Err != 0 || a.wait(t, conn.Ticket(i)) != nil {
						t.Errorf("message %d: %+v", i, got)
					}
				}
				got := b.entry(t) // 16 MiB that were being received, and may have ended
				if (got.Err == 0) != (a.wait(t, early) == nil) && got.Err != 0 {
					t.Errorf("the message under way: %+v", got)
				}
				if bytes.ContainsFunc(dst, func(r rune) bool { return r != 0 }) {
					t.Error("a byte landed after the end")
				}
				a.path.Send(1000, sendOp(src[:1]))
				if err := a.wait(t, 1000); err == nil {
					t.Error("a message after the end")
				}
			})
		})
	}
}

// A message that was reported to the sender as delivered can be received after the sender has
// ended.
func TestMessagesOutliveTheirSender(t *testing.T) {
	a, b := newPair(t, wayCMA)
	src, _ := memory(t, ring.InlineMessage)
	const n = 10
	for i := range n {
		a.path.Send(conn.Ticket(i), sendOp(numbered(src[:i*1000], i)))
		if err := a.wait(t, conn.Ticket(i)); err != nil {
			t.Fatal(err)
		}
	}
	a.Fail(fabric.ErrConnAborted)
	<-b.stopped
	dst, _ := memory(t, ring.InlineMessage)
	for i := range n {
		b.post(t, uint64(i), dst)
		if got := b.entry(t); got.Err != 0 || got.Len != uint64(i*1000) || !bytes.Equal(dst[:i*1000], numbered(src[:i*1000], i)) {
			t.Fatalf("message %d: %+v", i, got)
		}
	}
}

// A message to a peer that has already ended is not reported as delivered.
func TestMessagesToWhoHasEndedFail(t *testing.T) {
	a, b := newPair(t, wayCMA)
	a.deaf = true
	b.Fail(fabric.ErrConnAborted)
	<-b.stopped
	src, _ := memory(t, 64)
	a.path.Send(1, sendOp(src))
	if !a.running(1) {
		t.Errorf("ended by %v", a.wait(t, 1))
	}
	a.Fail(fabric.ErrConnReset)
	if err := a.wait(t, 1); !errors.Is(err, fabric.ErrConnReset) {
		t.Error(err)
	}
}

// A peer that writes invalid entries into the rings ends the connection and has no other effect.
func TestForgedRingsEndTheConnection(t *testing.T) {
	put := func(e ring.Message, words ...uint64) func(a *dataPath) {
		return func(a *dataPath) {
			at, _, _ := a.outbox.ring.Reserve(ring.MessageBytes / 2)
			e.Put(at)
			for i, w := range words {
				sys.Store64(at+ring.MessageHeader+8*uint64(i), w)
			}
			a.outbox.ring.Commit(max(ring.MessageUnit, uint64(e.Size)))
		}
	}
	answer := func(number uint64) func(a *dataPath) {
		return func(a *dataPath) {
			if _, err := a.inbox.replies.Put(ring.Entry{number}); err != nil {
				panic(err)
			}
		}
	}
	listed := ring.Message{Kind: ring.MessageListed, Flags: ring.MessageAnswer, Size: 64, Count: 2, Length: 1 << 20}
	forgeries := map[string]func(a *dataPath){
		"answer to nothing":               answer(0),
		"answer to nothing, far away":     answer(1 << 60),
		"segments of another length":      put(listed, 4096, 1<<20, 8192, 1),
		"segments that wrap":              put(listed, 4096, 1<<63, 8192, 1<<63+1<<20),
		"segment that wraps":              put(listed, ^uint64(0), 1<<20, 8192, 0),
		"more produced than there can be": func(a *dataPath) { a.outbox.ring.Commit(1 << 40) },
	}
	for name, e := range forgedEntries {
		forgeries["entry: "+name] = put(e)
	}
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t, wayCMA)
			dst, _ := memory(t, 1<<20)
			b.post(t, 1, dst)
			forge(a.path)
			_ = b.peer.SendFrame(frameWake, nil)
			b.path.inbox.serve()
			select {
			case err := <-b.failed:
				if !errors.Is(err, fabric.ErrProtocol) {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the connection lives on")
			}
			<-b.stopped
		})
	}
}

// forgedEntries are entries that an honest peer never makes. The test of package ring has more.
var forgedEntries = map[string]ring.Message{
	"no size":                     {Kind: ring.MessageInline},
	"size beyond the ring":        {Kind: ring.MessageInline, Size: ring.MessageBytes + ring.MessageUnit, Length: 5},
	"length beyond the entry":     {Kind: ring.MessageInline, Size: 64, Length: 33},
	"length that wraps":           {Kind: ring.MessageInline, Size: 64, Length: ^uint64(0) - 31},
	"chunked length that wraps":   {Kind: ring.MessageInline, Flags: ring.MessageChunked, Size: 64, Length: ^uint64(0) - 39},
	"flag that is none":           {Kind: ring.MessageInline, Flags: 8, Size: 64, Length: 1},
	"kind that is none":           {Kind: 9, Size: 64, Length: 1},
	"list beyond the entry":       {Kind: ring.MessageListed, Flags: ring.MessageAnswer, Size: 64, Count: 3, Length: 1 << 20},
	"list nobody is answered for": {Kind: ring.MessageListed, Size: 64, Count: 1, Length: 1 << 20},
	"far list that is endless":    {Kind: ring.MessageFar, Flags: ring.MessageAnswer, Size: 64, Count: 1 << 31, Length: 1 << 20},
	"message of a terabyte":       {Kind: ring.MessageListed, Flags: ring.MessageAnswer, Size: 64, Count: 1, Length: 1 << 40},
}
