// SPDX-License-Identifier: MIT

package shm

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

func newMessageRing(t testing.TB) ([]byte, *messageWriter, *messageReader) {
	mem, w, r := newTestRing(t)
	return mem, &messageWriter{mem: w.mem}, &messageReader{mem: r.mem}
}

// putBytes adds an inline message whose bytes are all v, in one step.
func putBytes(w *messageWriter, n uint64, v byte) (bool, error) {
	e := messageEntry{kind: messageInline, length: n, data: uint64(v)}
	e.size = uint32(entrySize(e.body()))
	at, ok, err := w.reserve(uint64(e.size))
	if !ok {
		return false, err
	}
	e.put(at)
	for i, b := 0, sys.Bytes(at+messageHeader, int(n)); i < len(b); i++ {
		b[i] = v
	}
	w.commit(uint64(e.size))
	return true, nil
}

// takeBytes takes the next message, which must be one of putBytes.
func takeBytes(t *testing.T, r *messageReader, n uint64, v byte) (ok bool) {
	t.Helper()
	var e messageEntry
	ok, err := r.next(&e)
	if err != nil || ok && (e.length != n || e.data != uint64(v) || e.kind != messageInline) {
		t.Fatalf("message of %d bytes: %+v, %v", n, e, err)
	}
	if !ok {
		return false
	}
	for i, b := range sys.Bytes(e.at, int(n)) {
		if b != v {
			t.Fatalf("byte %d of %d is %d, want %d", i, n, b, v)
		}
	}
	r.take(&e)
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
		m := message{rng.Uint64N(inlineMessage >> rng.UintN(15)), byte(i)}
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
	w.wait()
	notified := 0
	for takeBytes(t, r, 1000, 1) {
		if !r.producerWaits() {
			continue
		}
		if notified++; r.produced-r.consumed > messageBytes/2 {
			t.Errorf("notified with %d bytes in the ring", r.produced-r.consumed)
		}
	}
	if notified != 1 {
		t.Errorf("notified %d times", notified)
	}
}

// badEntries are entries that no honest peer makes, at the start of an empty ring.
var badEntries = map[string]messageEntry{
	"no size":                        {kind: messageInline},
	"size that is not whole units":   {kind: messageInline, size: 65, length: 33},
	"size beyond what is produced":   {kind: messageInline, size: 4032, length: 4000},
	"size beyond the ring":           {kind: messageInline, size: messageBytes + messageUnit, length: 5},
	"length beyond the entry":        {kind: messageInline, size: 64, length: 33},
	"length below the entry":         {kind: messageInline, size: 128, length: 3},
	"length beyond what goes inline": {kind: messageInline, flags: messageChunked, size: 32 << 10, length: 32<<10 - 64},
	"length that wraps":              {kind: messageInline, size: 64, length: ^uint64(0) - 31},
	"chunked length that wraps":      {kind: messageInline, flags: messageChunked, size: 64, length: ^uint64(0) - 39},
	"flag that is none":              {kind: messageInline, flags: 8, size: 64, length: 1},
	"kind that is none":              {kind: 9, size: 64, length: 1},
	"skip at the start":              {kind: messageSkip, size: messageBytes},
	"list longer than allowed":       {kind: messageListed, flags: messageAnswer, size: 2048, count: 125, length: 1 << 20},
	"list beyond the entry":          {kind: messageListed, flags: messageAnswer, size: 64, count: 3, length: 1 << 20},
	"list nobody is answered for":    {kind: messageListed, size: 64, count: 1, length: 1 << 20},
	"far list that is endless":       {kind: messageFar, flags: messageAnswer, size: 64, count: 1 << 31, length: 1 << 20},
	"message of a terabyte":          {kind: messageListed, flags: messageAnswer, size: 64, count: 1, length: 1 << 40},
}

func TestMessageRingRefusesGarbage(t *testing.T) {
	for name, e := range badEntries {
		mem, _, r := newMessageRing(t)
		e.put(r.mem + ringMessages)
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], 2048)
		if ok, err := r.next(&e); ok || !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	mem, w, r := newMessageRing(t)
	var e messageEntry
	for _, v := range []uint64{1, 63, messageBytes + 64, 1 << 63, ^uint64(0)} {
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], v)
		if ok, err := r.next(&e); ok || !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("produced %#x: %v, %v", v, ok, err)
		}
	}
	binary.NativeEndian.PutUint64(mem[ringConsumed+8*messageRing:], 64)
	w.produced, w.consumed = messageBytes, 0
	w.produced -= 64
	binary.NativeEndian.PutUint64(mem[ringConsumed+8*messageRing:], messageBytes)
	if _, ok, err := w.reserve(4096); ok || !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("consumed more than was produced: %v, %v", ok, err)
	}
}

// FuzzMessageRing lets a peer write anything into the ring and its counters between the reader's
// steps: what the reader hands out lies in the ring, and it ends.
func FuzzMessageRing(f *testing.F) {
	good := messageEntry{kind: messageInline, size: 64, length: 5}
	var b [64]byte
	good.put(sys.AddrOf(b[:]))
	f.Add(b[:], uint64(64), uint64(128))
	good.kind, good.flags, good.length = messageInline, messageChunked, 5000
	good.size = uint32(entrySize(good.body()))
	good.put(sys.AddrOf(b[:]))
	f.Add(b[:], uint64(64), uint64(1<<20))
	f.Add([]byte{0xff, 0xff}, uint64(messageBytes), uint64(0))
	f.Fuzz(func(t *testing.T, entries []byte, produced, later uint64) {
		mem, _, r := newMessageRing(t)
		for at := ringMessages; at < ringBytes && len(entries) > 0; at += len(entries) {
			copy(mem[at:], entries)
		}
		decodetest.Bounded(t, len(entries), func() { fuzzMessageRing(t, mem, r, produced, later) })
	})
}

func fuzzMessageRing(t *testing.T, mem []byte, r *messageReader, produced, later uint64) {
	var e messageEntry
	for step := 0; ; step++ {
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], produced)
		ok, err := r.next(&e)
		if !ok || err != nil || step > 2*messageBytes/messageUnit {
			return
		}
		binary.NativeEndian.PutUint64(mem[ringProduced+8*messageRing:], later)
		if e.kind == messageInline {
			n, all, err := r.arrived(&e)
			if err != nil {
				return
			}
			if end := e.at + max(n, uint64(e.size)-messageHeader); end > r.mem+ringBytes || n > inlineMessage {
				t.Fatalf("%+v: %d bytes, %v, end %d beyond the ring", e, n, all, end-r.mem)
			}
			if e.flags&messageChunked != 0 && e.verdict()+8 > r.mem+ringBytes {
				t.Fatalf("%+v: verdict beyond the ring", e)
			}
		} else if e.at+e.body() > r.mem+ringBytes {
			t.Fatalf("%+v: list beyond the ring", e)
		}
		r.take(&e)
	}
}
