// SPDX-License-Identifier: MIT

package ring

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/internal/sys"
)

func newTestRing(t testing.TB) ([]byte, *Writer, *Reader) {
	mem, err := sys.Alloc(Bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sys.Free(mem) })
	return mem, &Writer{mem: sys.AddrOf(mem)}, &Reader{mem: sys.AddrOf(mem)}
}

func TestRingFillsAndWraps(t *testing.T) {
	_, w, r := newTestRing(t)
	for lap := uint64(0); lap < 3; lap++ {
		for i := uint64(0); i < Entries; i++ {
			if ok, err := w.Put(Entry{lap<<32 | i, i, ^i}); !ok || err != nil {
				t.Fatalf("lap %d, entry %d: %v, %v", lap, i, ok, err)
			}
		}
		if ok, err := w.Put(Entry{1, 1, 1}); ok || err != nil {
			t.Fatalf("lap %d: a full ring took an entry (%v)", lap, err)
		}
		for i := uint64(0); i < Entries; i++ {
			e, ok, err := r.Next()
			if want := (Entry{lap<<32 | i, i, ^i}); e != want || !ok || err != nil {
				t.Fatalf("lap %d: got %v, %v, %v; want %v", lap, e, ok, err, want)
			}
			r.Take()
		}
		if _, ok, err := r.Next(); ok || err != nil {
			t.Fatalf("lap %d: an empty ring gave an entry (%v)", lap, err)
		}
	}
}

func TestRingFlagsAreTakenOnce(t *testing.T) {
	_, w, r := newTestRing(t)
	if w.ConsumerWaits() || r.ProducerWaits() {
		t.Fatal("a new ring has a flag set")
	}
	r.AskForWake()
	w.AskForSpace()
	if !w.ConsumerWaits() || !r.ProducerWaits() {
		t.Fatal("a flag was not seen")
	}
	if w.ConsumerWaits() || r.ProducerWaits() {
		t.Fatal("a flag was seen twice")
	}
}

func TestRingConcurrent(t *testing.T) {
	_, w, r := newTestRing(t)
	const n = 5 * Entries
	deadline := time.Now().Add(30 * time.Second)
	fault := make(chan error, 1)
	go func() {
		for i := uint64(0); i < n; {
			ok, err := w.Put(Entry{i * i, i, i})
			if err != nil || time.Now().After(deadline) {
				fault <- errors.Join(err, errors.New("producer stopped"))
				return
			}
			if ok {
				i++
			}
		}
		fault <- nil
	}()
	for i := uint64(0); i < n && time.Now().Before(deadline); {
		e, ok, err := r.Next()
		if err != nil || ok && e != (Entry{i * i, i, i}) {
			t.Fatalf("entry %d: %v, %v", i, e, err)
		}
		if ok {
			r.Take()
			i++
		}
	}
	if err := <-fault; err != nil {
		t.Fatal(err)
	}
}

func TestRingGarbageIsAProtocolError(t *testing.T) {
	mem, w, r := newTestRing(t)
	for _, v := range []uint64{1 << 63, ^uint64(0), Entries + 1} {
		binary.NativeEndian.PutUint64(mem[ringProduced:], v)
		if _, ok, err := r.Next(); ok || !errors.Is(err, fabric.ErrProtocol) {
			t.Fatalf("produced %#x: %v, %v", v, ok, err)
		}
	}
	for _, v := range []uint64{1, ^uint64(0) - Entries, 1 << 40} {
		binary.NativeEndian.PutUint64(mem[ringConsumed:], v)
		if ok, err := w.Put(Entry{1, 1, 1}); ok || !errors.Is(err, fabric.ErrProtocol) {
			t.Fatalf("consumed %#x: %v, %v", v, ok, err)
		}
	}
}

// FuzzRing lets a peer write anything into the header between our own steps. The ring never returns
// more entries than the peer can have produced, and never accesses memory outside of it.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5})
	f.Add([]byte{1, 0xff, 0, 1, 0xff, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		mem, w, r := newTestRing(t)
		decodetest.Bounded(t, len(script), func() { fuzzRing(t, script, mem, w, r) })
	})
}

func fuzzRing(t *testing.T, script, mem []byte, w *Writer, r *Reader) {
	for i := 0; i+1 < len(script); i += 2 {
		v := uint64(int64(int8(script[i+1]))) * (Entries / 8)
		switch script[i] % 6 {
		case 0:
			binary.NativeEndian.PutUint64(mem[ringProduced:], v)
		case 1:
			binary.NativeEndian.PutUint64(mem[ringConsumed:], v)
		case 2:
			_, _ = w.Put(Entry{v, v, v})
		case 3:
			before := r.consumed
			if _, ok, err := r.Next(); ok && err == nil {
				r.Take()
			}
			if r.consumed-before > 1 {
				t.Fatalf("one take moved from %d to %d", before, r.consumed)
			}
		case 4:
			w.AskForSpace()
			w.ConsumerWaits()
		case 5:
			r.AskForWake()
			r.ProducerWaits()
		}
	}
}
