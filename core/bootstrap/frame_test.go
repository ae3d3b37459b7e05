// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"mori/core/decode/decodetest"
)

func encode(f frame) []byte { return append(f.head(len(f.payload)), f.payload...) }

func FuzzFrame(f *testing.F) {
	f.Add(encode(frame{kind: frameUp, op: opAllGather, seq: 3, payload: append(appendRecordHead(nil, 1, 2), 7, 8)}), uint8(4))
	f.Add(encode(frame{kind: frameFailed, payload: failure{kind: failDied, rank: 2, text: "reset"}.append(nil)}), uint8(3))
	f.Add(encode(frame{kind: frameLeave, rank: 5, seq: 9}), uint8(9))
	f.Add([]byte{0, 0, 0, 64, 8, 1}, uint8(1))
	f.Add(frame{kind: frameUp, op: opBarrier}.head(maxFrame), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		r := bytes.NewReader(b)
		for {
			var got frame
			var err error
			decodetest.Bounded(t, r.Len(), func() { got, err = readFrame(r) })
			if err != nil {
				break
			}
			at := len(b) - r.Len()
			if again := encode(got); !bytes.Equal(again, b[at-len(again):at]) {
				t.Fatalf("%x reads as %+v, which is %x", b[:at], got, again)
			}
			var why failure
			decodetest.Bounded(t, len(got.payload), func() { why, err = parseFailure(got.payload, int(size)) })
			if err == nil && !bytes.Equal(why.append(nil), got.payload) {
				t.Errorf("failure %x reads as %+v", got.payload, why)
			}
			blobs := make([][]byte, size)
			decodetest.Bounded(t, len(got.payload), func() { err = parseRecords(got.payload, blobs) })
			if err == nil {
				n := 0
				for _, blob := range blobs {
					if blob != nil {
						n += recordHead + len(blob)
					}
				}
				if n != len(got.payload) {
					t.Errorf("records %x have %d bytes", got.payload, n)
				}
			}
		}
		if len(b) >= ticketSize {
			var of ticket
			decodetest.Bounded(t, len(b), func() { of = parseTicket(b) })
			if again := of.append(nil); !bytes.Equal(again, b[:ticketSize]) {
				t.Errorf("ticket %x reads as %x", b[:ticketSize], again)
			}
		}
	})
}

// A wire is a connection whose other side says what it says, whatever it hears.
type wire struct {
	io.Reader
	io.Writer
}

// FuzzHandshake has both sides of the handshake read any bytes, and the listener a good opening
// before them.
func FuzzHandshake(f *testing.F) {
	f.Add(make([]byte, openingSize+proofSize), false)
	f.Add(append(opening(), make([]byte, ticketSize+proofSize)...), false)
	f.Add(make([]byte, ticketSize+proofSize), true)
	f.Fuzz(func(t *testing.T, b []byte, greeted bool) {
		if greeted {
			b = append(opening(), b...)
		}
		decodetest.Bounded(t, len(b), func() {
			if x, err := acceptHandshake(wire{bytes.NewReader(b), io.Discard}, testSecret); err == nil {
				t.Errorf("%x was admitted as %+v", b, x)
			}
			if err := dialHandshake(wire{bytes.NewReader(b), io.Discard}, testSecret, ticket{}); err == nil {
				t.Errorf("%x was taken for a listener", b)
			}
		})
	})
}

// TestLongPayloadNeedsItsBytes has a frame that says 1 GiB and ends.
func TestLongPayloadNeedsItsBytes(t *testing.T) {
	head := frame{kind: frameUp, op: opBarrier}.head(maxFrame)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readFrame(io.MultiReader(bytes.NewReader(head), bytes.NewReader(make([]byte, 100))))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("100 bytes made us take %d bytes of memory", used)
	}
}

func TestLongPayloadIsRead(t *testing.T) {
	f := frame{kind: frameDown, op: opBroadcast, root: 3, seq: 1 << 40, payload: make([]byte, 5*readStep+7)}
	for i := range f.payload {
		f.payload[i] = byte(rand.Uint32())
	}
	got, err := readFrame(bytes.NewReader(encode(f)))
	if err != nil || !bytes.Equal(got.payload, f.payload) || got.seq != f.seq || got.what() != f.what() {
		t.Errorf("got %d bytes of call %d, %v", len(got.payload), got.seq, err)
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	good := encode(frame{kind: frameUp, op: opBarrier, seq: 1})
	for name, change := range map[string]func(b []byte){
		"kind 0":         func(b []byte) { b[4] = 0 },
		"kind too high":  func(b []byte) { b[4] = byte(frameEnd) },
		"call too high":  func(b []byte) { b[5] = byte(opEnd) },
		"no call":        func(b []byte) { b[5] = 0 },
		"not zero":       func(b []byte) { b[7] = 1 },
		"too long":       func(b []byte) { b[3] = 0x41 },
		"long for Leave": func(b []byte) { b[4], b[2] = byte(frameLeave), 1 },
	} {
		b := bytes.Clone(good)
		change(b)
		if _, err := readFrame(bytes.NewReader(b)); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRanksText(t *testing.T) {
	for _, c := range []struct {
		ranks []int
		want  string
	}{
		{[]int{3}, "rank 3"}, {[]int{5, 3}, "ranks 3, 5"}, {[]int{3, 4}, "ranks 3, 4"}, {[]int{3, 4, 5, 6, 7, 9}, "ranks 3-7, 9"}, {[]int{0, 1, 2, 8, 9}, "ranks 0-2, 8, 9"},
	} {
		if got := ranksText(c.ranks); got != c.want {
			t.Errorf("%v is %q, want %q", c.ranks, got, c.want)
		}
	}
}

func TestTreeHasEveryRankOnce(t *testing.T) {
	for radix := 1; radix < 10; radix++ {
		for size := 1; size < 80; size++ {
			seen := []int{0}
			for rank := range size {
				for _, kid := range kidsOf(rank, radix, size) {
					if parentOf(kid, radix) != rank {
						t.Fatalf("radix %d: rank %d is a child of %d, whose parent is %d", radix, kid, rank, parentOf(kid, radix))
					}
					seen = append(seen, kid)
				}
			}
			if slices.Sort(seen); len(seen) != size || seen[size-1] != size-1 || len(slices.Compact(seen)) != size {
				t.Fatalf("radix %d, size %d: %v", radix, size, seen)
			}
		}
	}
}
