// SPDX-License-Identifier: MIT

package socket

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

func TestCompressionPays(t *testing.T) {
	const mib = 1 << 20
	perByte := func(bytesPerSecond float64) float64 { return 1e9 / bytesPerSecond }
	for _, c := range []struct {
		name string
		m    int     // compressed bytes of 1 MiB
		cost float64 // ns
		wire float64 // ns
		want bool
	}{
		{"half of it over 100 Mbit/s", mib / 2, 1, perByte(12.5e6), true},
		{"half of it over 1 Gbit/s", mib / 2, 1, perByte(125e6), true},
		{"half of it over 10 Gbit/s", mib / 2, 1, perByte(1.25e9), false},
		{"zeros over 10 Gbit/s", 50, 0.15, perByte(1.25e9), true},
		{"zeros over loopback", 50, 0.15, perByte(5e9), false},
		{"nothing saved over 100 Mbit/s", mib, 0.1, perByte(12.5e6), false},
		{"a tenth saved over 1 Mbit/s", mib * 9 / 10, 1, perByte(125e3), false},
		{"a quarter saved over 100 Mbit/s", mib * 3 / 4, 1, perByte(12.5e6), true},
		{"half of it by a slow processor over 1 Gbit/s", mib / 2, 10, perByte(125e6), false},
		{"half of it over a wire of which nothing is known", mib / 2, 1, 0, false},
		{"bytes that grow", mib + 50, 0.1, perByte(1e3), false},
	} {
		if got := pays(mib, c.m, c.cost, c.wire); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// thinBytes returns n bytes that compress to about half.
func thinBytes(n int) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32()) & 15
	}
	return b
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rand.Uint64())
	}
	return b
}

// compressed returns how many of n payloads a Compressor compresses.
func compressed(k *Compressor, payload []byte, n int) (taken int) {
	for range n {
		j := Job{H: frame.Header{Kind: frame.KindWrite, Length: uint64(len(payload))}, Op: &fabric.Op{
			Seg: fabric.Seg{Addr: sys.AddrOf(payload), Len: uint64(len(payload))}}}
		if k.due(&j) {
			k.compress(&j)
		}
		if j.H.Flags&frame.FlagCompressed != 0 {
			taken++
		}
		k.release()
	}
	return taken
}

func TestCompressorsGiveUpWhereItDoesNotPay(t *testing.T) {
	rate := func(v float64) func() float64 { return func() float64 { return v } }
	const n, fewest, most = 300, 0, 300
	for _, c := range []struct {
		name    string
		k       Compressor
		payload []byte
		want    int
		tries   int // at most
	}{
		{"a wire as slow as can be", Compressor{rate: rate(1e3)}, thinBytes(1 << 20), most, n},
		{"a wire as fast as can be", Compressor{rate: rate(1e18)}, thinBytes(1 << 20), fewest, 12},
		{"a wire of which nothing is known", Compressor{rate: rate(0)}, thinBytes(64 << 10), fewest, 0},
		{"a slow wire and random bytes", Compressor{rate: rate(1e3)}, randomBytes(1 << 20), fewest, 12},
		{"all that gets smaller, over a fast wire", Compressor{rate: rate(1e18), always: true}, thinBytes(64 << 10), most, n},
		{"all that gets smaller, random bytes", Compressor{rate: rate(1e18), always: true}, randomBytes(64 << 10), fewest, 12},
		{"a payload too short", Compressor{rate: rate(1e3)}, thinBytes(minCompress - 1), fewest, 0},
		{"a payload too long", Compressor{rate: rate(1e3)}, thinBytes(frame.MaxCompress + 1), fewest, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tries int
			rate := c.k.rate
			c.k.rate = func() float64 { tries++; return rate() }
			if got := compressed(&c.k, c.payload, n); got != c.want {
				t.Errorf("%d of %d were compressed, want %d", got, n, c.want)
			}
			if c.tries > 0 && tries > c.tries {
				t.Errorf("%d tries, want %d at most", tries, c.tries)
			}
			if c.k.skip > maxPause {
				t.Errorf("%d payloads are to pass", c.k.skip)
			}
		})
	}
}

// TestACompressorTriesAgain sends random bytes, and then bytes that compress.
func TestACompressorTriesAgain(t *testing.T) {
	k := Compressor{rate: func() float64 { return 1e3 }}
	if n := compressed(&k, randomBytes(minCompress), 1000); n != 0 {
		t.Fatalf("%d of random bytes were compressed", n)
	}
	if n := compressed(&k, thinBytes(minCompress), 1000); n < 1000-maxPause {
		t.Errorf("only %d of 1000 were compressed", n)
	}
}

// iovecs is a Reply.
type iovecs []sys.Iovec

func (v iovecs) Iovecs() []sys.Iovec { return v }

// TestMemoryThatIsGoneIsNotCompressed checks that the Compressor leaves unreadable memory to the
// system call, which reports the cause.
func TestMemoryThatIsGoneIsNotCompressed(t *testing.T) {
	mem, err := sys.Alloc(minCompress)
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Free(mem); err != nil {
		t.Fatal(err)
	}
	k := Compressor{always: true, rate: func() float64 { return 0 }}
	j := Job{H: frame.Header{Kind: frame.KindReply, Length: minCompress}, Reply: iovecs{{Addr: 4096, Len: minCompress}}}
	if k.compress(&j); j.H.Flags != 0 || k.buf != nil || k.skip == 0 {
		t.Errorf("%+v", j.H)
	}
}
