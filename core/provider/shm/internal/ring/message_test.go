// SPDX-License-Identifier: MIT

package ring

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/internal/sys"
)

func newMessageRing(t testing.TB) ([]byte, *MessageWriter, *MessageReader) {
	mem, w, r := newTestRing(t)
	return mem, &MessageWriter{mem: w.mem}, &MessageReader{mem: r.mem}
}

// putBytes adds an inline message whose bytes are all v, in one step.
func putBytes(w *MessageWriter, n uint64, v byte) (bool, error) {
	e := Message{Kind: MessageInline, Length: n, Data: uint64(v)}
	e.Size = uint32(EntrySize(e.Body()))
	at, ok, err := w.Reserve(uint64(e.Size))
	if !ok {
		return false, err
	}
	e.Put(at)
	for i, b := 0, sys.Bytes(at+MessageHeader, int(n)); i < len(b); i++ {
		b[i] = v
	}
	w.Commit(uint64(e.Size))
	return true, nil
}

// takeBytes takes the next message and checks that putBytes made it.
func takeBytes(t *testing.T, r *MessageReader, n uint64, v byte) (ok bool) {
	t.Helper()
	var e Message
	ok, err := r.Next(&e)
	if err != nil || ok && (e.Length != n || e.Data != uint64(v) || e.Kind != MessageInline) {
		t.Fatalf("message of %d bytes: %+v, %v", n, e, err)
	}
	if !ok {
		return false
	}
	for i, b := range sys.Bytes(e.At, int(n)) {
		if b != v {
			t.Fatalf("byte %d of %d is %d, want %d", i, n, b, v)
		}
	}
	r.Take(&e)
	return true
}

func TestMessageRingKeepsEveryMessage(t *testing.T) {
	_, w, r := newMessageRing(t)
	rng := rand.New(rand.NewPCG(1, 2))
	type message struct {
		n uint64
		v byte
	}
	var inside []message
	full := 0
	for i := range 20000 {
		m := message{rng.Uint64N(InlineMessage >> rng.UintN(15)), byte(i)}
		ok, err := putBytes(w, m.n, m.v)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			inside = append(inside, m)
			continue
		}
		full++
		for k := rng.IntN(len(inside) + 1); k > 0; k-- {
			if !takeBytes(t, r, inside[0].n, inside[0].v) {
				t.Fatalf("the ring lost one of %d messages", len(inside))
			}
			inside = inside[1:]
		}
	}
	for _, m := range inside {
		if !takeBytes(t, r, m.n, m.v) {
			t.Fatal("the ring lost a message")
		}
	}
	if takeBytes(t, r, 0, 0) || full < 10 {
		t.Fatalf("a message too many, or the ring was full only %d times", full)
	}
}

func TestMessageRingConcurrent(t *testing.T) {
	_, w, r := newMessageRing(t)
	const n = 50000
	deadline := time.Now().Add(30 * time.Second)
	fault := make(chan error, 1)
	size := func(i int) uint64 { return uint64(i*i%5003) >> (i % 7) }
	go func() {
		for i := 0; i < n; {
			ok, err := putBytes(w, size(i), byte(i))
			if err != nil || time.Now().After(deadline) {
				fault <- errors.Join(err, errors.New("the producer stopped"))
				return
			}
			if ok {
				i++
			}
		}
		fault <- nil
	}()
	for i := 0; i < n && time.Now().Before(deadline); {
		if takeBytes(t, r, size(i), byte(i)) {
			i++
		}
	}
	if err := <-fault; err != nil {
		t.Fatal(err)
	}
}

func TestProducerOfMessagesHearsOfRoom(t *testing.T) {
	_, w, r := newMessageRing(t)
	for {
		if ok, err := putBytes(w, 1000, 1); err != nil {
			t.Fatal(err)
		} else if !ok {
			break
		}
	}
	w.AskForSpace()
	notified := 0
	for takeBytes(t, r, 1000, 1) {
		if !r.ProducerWaits() {
			continue
		}
		if notified++; r.produced-r.consumed > MessageBytes/2 {
			t.Errorf("notified with %d bytes in the ring", r.produced-r.consumed)
		}
	}
	if notified != 1 {
		t.Errorf("notified %d times", notified)
	}
}

// badEntries are entries that an honest peer never makes, at the start of an empty ring.
var badEntries = map[string]Message{
	"no size":                        {Kind: MessageInline},
	"size that is not whole units":   {Kind: MessageInline, Size: 65, Length: 33},
	"size beyond what is produced":   {Kind: MessageInline, Size: 4032, Length: 4000},
	"size beyond the ring":           {Kind: MessageInline, Size: MessageBytes + MessageUnit, Length: 5},
	"length beyond the entry":        {Kind: MessageInline, Size: 64, Length: 33},
	"length below the entry":         {Kind: MessageInline, Size: 128, Length: 3},
	"length beyond what goes inline": {Kind: MessageInline, Flags: MessageChunked, Size: 32 << 10, Length: 32<<10 - 64},
	"length that wraps":              {Kind: MessageInline, Size: 64, Length: ^uint64(0) - 31},
	"chunked length that wraps":      {Kind: MessageInline, Flags: MessageChunked, Size: 64, Length: ^uint64(0) - 39},
	"flag that is none":              {Kind: MessageInline, Flags: 8, Size: 64, Length: 1},
	"kind that is none":              {Kind: 9, Size: 64, Length: 1},
	"skip at the start":              {Kind: messageSkip, Size: MessageBytes},
	"list longer than allowed":       {Kind: MessageListed, Flags: MessageAnswer, Size: 2048, Count: 125, Length: 1 << 20},
	"list beyond the entry":          {Kind: MessageListed, Flags: MessageAnswer, Size: 64, Count: 3, Length: 1 << 20},
	"list nobody is answered for":    {Kind: MessageListed, Size: 64, Count: 1, Length: 1 << 20},
	"far list that is endless":       {Kind: MessageFar, Flags: MessageAnswer, Size: 64, Count: 1 << 31, Length: 1 << 20},
	"message of a terabyte":          {Kind: MessageListed, Flags: MessageAnswer, Size: 64, Count: 1, Length: 1 << 40},
}

func TestMessageRingRefusesGarbage(t *testing.T) {
	for name, e := range badEntries {
		mem, _, r := newMessageRing(t)
		e.Put(r.mem + ringMessages)
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], 2048)
		if ok, err := r.Next(&e); ok || !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	mem, w, r := newMessageRing(t)
	var e Message
	for _, v := range []uint64{1, 63, MessageBytes + 64, 1 << 63, ^uint64(0)} {
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], v)
		if ok, err := r.Next(&e); ok || !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("produced %#x: %v, %v", v, ok, err)
		}
	}
	binary.NativeEndian.PutUint64(mem[ringConsumed+8*messageRing:], 64)
	w.produced, w.consumed = MessageBytes, 0
	w.produced -= 64
	binary.NativeEndian.PutUint64(mem[ringConsumed+8*messageRing:], MessageBytes)
	if _, ok, err := w.Reserve(4096); ok || !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("consumed more than was produced: %v, %v", ok, err)
	}
}

// FuzzMessageRing lets a peer write anything into the ring and its counters between the reader's
// steps. What the reader returns must lie in the ring, and the reader must end.
func FuzzMessageRing(f *testing.F) {
	good := Message{Kind: MessageInline, Size: 64, Length: 5}
	var b [64]byte
	good.Put(sys.AddrOf(b[:]))
	f.Add(b[:], uint64(64), uint64(128))
	good.Kind, good.Flags, good.Length = MessageInline, MessageChunked, 5000
	good.Size = uint32(EntrySize(good.Body()))
	good.Put(sys.AddrOf(b[:]))
	f.Add(b[:], uint64(64), uint64(1<<20))
	f.Add([]byte{0xff, 0xff}, uint64(MessageBytes), uint64(0))
	f.Fuzz(func(t *testing.T, entries []byte, produced, later uint64) {
		mem, _, r := newMessageRing(t)
		for at := ringMessages; at < Bytes && len(entries) > 0; at += len(entries) {
			copy(mem[at:], entries)
		}
		decodetest.Bounded(t, len(entries), func() { fuzzMessageRing(t, mem, r, produced, later) })
	})
}

func fuzzMessageRing(t *testing.T, mem []byte, r *MessageReader, produced, later uint64) {
	var e Message
	for step := 0; ; step++ {
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], produced)
		ok, err := r.Next(&e)
		if !ok || err != nil || step > 2*MessageBytes/MessageUnit {
			return
		}
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], later)
		if e.Kind == MessageInline {
			n, all, err := r.Arrived(&e)
			if err != nil {
				return
			}
			if end := e.At + max(n, uint64(e.Size)-MessageHeader); end > r.mem+Bytes || n > InlineMessage {
				t.Fatalf("%+v: %d bytes, %v, end %d beyond the ring", e, n, all, end-r.mem)
			}
			if e.Flags&MessageChunked != 0 && e.Verdict()+8 > r.mem+Bytes {
				t.Fatalf("%+v: verdict beyond the ring", e)
			}
		} else if e.At+e.Body() > r.mem+Bytes {
			t.Fatalf("%+v: list beyond the ring", e)
		}
		r.Take(&e)
	}
}
