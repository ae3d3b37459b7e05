// SPDX-License-Identifier: MIT

package descriptor

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
)

// The two test vectors that other implementations of the format agree on.
const goldenEngine = "96a3656e67a46e6f6465a2686ea93132372e302e302e31cd10924d"

var goldenMemory = "9fa000ffa0000000c440" + strings.Repeat("00", 64) + "ff00c440" + strings.Repeat("00", 64) + "ffa00000"

func TestEngineGoldenVector(t *testing.T) {
	d := Engine{Key: "eng", NodeID: "node", Hostname: "hn", Host: "127.0.0.1", Port: 4242, PID: 77}
	if got := hex.EncodeToString(d.Pack()); got != goldenEngine {
		t.Errorf("Pack = %s, want %s", got, goldenEngine)
	}
	raw, _ := hex.DecodeString(goldenEngine)
	if got, err := UnpackEngine(raw); err != nil || got != d {
		t.Errorf("Unpack = %+v, %v; want %+v", got, err, d)
	}
}

func TestMemoryGoldenVector(t *testing.T) {
	if got := hex.EncodeToString(NewMemory().Pack()); got != goldenMemory {
		t.Errorf("Pack = %s, want %s", got, goldenMemory)
	}
}

func TestDescsSurviveTheTrip(t *testing.T) {
	e := Engine{Key: strings.Repeat("k", MaxKey), NodeID: "n", Port: 65535, PID: 1 << 22, Incarnation: 1 << 63, PublicKey: identity.PublicKey{1, 31: 2}}
	if got, err := UnpackEngine(e.Pack()); err != nil || got != e {
		t.Errorf("engine: %+v, %v", got, err)
	}
	m := NewMemory()
	m.EngineKey, m.ID, m.Data, m.Size, m.Loc, m.NUMANode = "e", 1<<32-1, 1<<64-1, 1<<40, LocCPU, 1
	m.Secret, m.Incarnation, m.IPCHandle, m.VPodPPodID = [16]byte{1, 2}, 9, [64]byte{7}, "p"
	if got, err := UnpackMemory(m.Pack()); err != nil || got != m {
		t.Errorf("memory: %+v, %v", got, err)
	}
}

// TestOurElementGrows checks that a descriptor of an engine without a public key keeps its
// incarnation, and that an element longer than ours is read.
func TestOurElementGrows(t *testing.T) {
	raw, _ := hex.DecodeString(goldenEngine)
	raw[0]++
	own := append([]byte(ownMagic), 0, 0, 0, 0, 0, 0, 0, 9)
	if d, err := UnpackEngine(append(append(bytes.Clone(raw), 0xc4, byte(len(own))), own...)); err != nil || d.Incarnation != 9 || d.PublicKey != (identity.PublicKey{}) {
		t.Errorf("without a public key: %+v, %v", d, err)
	}
	own = append(own, make([]byte, 40)...)
	own[len(ownMagic)+8] = 7
	if d, err := UnpackEngine(append(append(bytes.Clone(raw), 0xc4, byte(len(own))), own...)); err != nil || d.Incarnation != 9 || d.PublicKey != (identity.PublicKey{7}) {
		t.Errorf("with more: %+v, %v", d, err)
	}
}

func TestUnpackIsLenientWhereTheFormatIs(t *testing.T) {
	short := []byte{0x92, 0xa1, 'k', 0xc4, 0x01, 'n'} // two elements, the second a bin
	if d, err := UnpackEngine(short); err != nil || d.Key != "k" || d.NodeID != "n" || d.Port != 0 {
		t.Errorf("short array with bin: %+v, %v", d, err)
	}
	raw, _ := hex.DecodeString(goldenEngine)
	if _, err := UnpackEngine(append(raw, "trailing"...)); err != nil {
		t.Errorf("trailing bytes: %v", err)
	}
	long := append([]byte{0x9a}, raw[1:]...)
	long = append(long, 0xa1, 'x', 0x02, 0xc0, 0xc0) // 10 elements, the last four unknown to us
	if d, err := UnpackEngine(long); err != nil || d.Incarnation != 0 || d.PID != 77 {
		t.Errorf("long array: %+v, %v", d, err)
	}
	foreign := append([]byte{0x97}, raw[1:]...)
	foreign = append(foreign, 0xc4, 0x03, 1, 2, 3) // a bin that is not mori's
	if d, err := UnpackEngine(foreign); err != nil || d.Incarnation != 0 {
		t.Errorf("a foreign bin behind: %+v, %v", d, err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	raw, _ := hex.DecodeString(goldenEngine)
	for name, b := range map[string][]byte{
		"empty": nil, "truncated": raw[:len(raw)-3], "a map": {0x81, 1, 2}, "a number for a text": {0x91, 7}, "random": {0xc1, 0xff}, "nil": {0xc0},
		"huge": bytes.Repeat([]byte{0x91}, maxDescBytes+1), "a text that claims 4 GiB": {0x91, 0xdb, 0xff, 0xff, 0xff, 0xff, 'x'},
	} {
		if d, err := UnpackEngine(b); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("engine from %s: %+v, %v; want ErrInvalid", name, d, err)
		}
		if d, err := UnpackMemory(b); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("memory from %s: %+v, %v; want ErrInvalid", name, d, err)
		}
	}
}

// A descriptor of a few bytes must not make Unpack allocate gigabytes, whatever lengths it claims.
func TestUnpackAllocatesNoMoreThanItWasGiven(t *testing.T) {
	gold, _ := hex.DecodeString(goldenMemory)
	claim := []byte{0xc6, 0x30, 0, 0, 0}                                 // a binary of 768 MiB
	ipc := append(append([]byte{}, gold[:9]...), claim...)               // in place of the IPC handle
	behind := append(append([]byte{0x97}, make([]byte, 6)...), claim...) // in place of mori's element
	for i := 1; i <= 4; i++ {
		behind[i] = 0xa0
	}
	for name, b := range map[string][]byte{
		"a key of 768 MiB":             append([]byte{0x91}, claim...),
		"a text of 768 MiB":            {0x91, 0xdb, 0x30, 0, 0, 0, 'x'},
		"a handle of 768 MiB":          ipc,
		"an own element of 768 MiB":    behind,
		"an array of 2^32-1":           {0xdd, 0xff, 0xff, 0xff, 0xff, 0xa0},
		"a map of 2^31 pairs, skipped": append(append([]byte{0x98}, behind[1:7]...), 0xc0, 0xdf, 0x80, 0, 0, 0),
	} {
		decodetest.Bounded(t, len(b), func() {
			if d, err := UnpackEngine(b); err == nil && name != "a map of 2^31 pairs, skipped" {
				t.Errorf("engine from %s: %+v", name, d)
			}
			if d, err := UnpackMemory(b); err == nil {
				t.Errorf("memory from %s: %+v", name, d)
			}
		})
	}
}

func TestUnpackRefusesPortsThatAreNone(t *testing.T) {
	head := []byte{0x95, 0xa1, 'k', 0xa0, 0xa0, 0xa0}
	for name, port := range map[string][]byte{"2^63-1": {0xcf, 0x7f, 255, 255, 255, 255, 255, 255, 255}, "65536": {0xce, 0, 1, 0, 0}, "-1": {0xff}, "nil": {0xc0}} {
		if d, err := UnpackEngine(append(append([]byte{}, head...), port...)); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("port %s: %+v, %v; want ErrInvalid", name, d, err)
		}
	}
	if d, err := UnpackEngine(append(append([]byte{}, head...), 0xcd, 0xff, 0xff)); err != nil || d.Port != 65535 {
		t.Errorf("port 65535: %+v, %v", d, err)
	}
}

func FuzzUnpackEngine(f *testing.F) {
	raw, _ := hex.DecodeString(goldenEngine)
	f.Add(raw)
	f.Add(Engine{Key: "k", Incarnation: 5}.Pack())
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Engine
		var err error
		decodetest.Bounded(t, len(b), func() { d, err = UnpackEngine(b) })
		if err != nil {
			return
		}
		again, err := UnpackEngine(d.Pack())
		if err != nil || again != d {
			t.Fatalf("%+v packs to %+v, %v", d, again, err)
		}
	})
}

func FuzzUnpackMemory(f *testing.F) {
	raw, _ := hex.DecodeString(goldenMemory)
	f.Add(raw)
	m := NewMemory()
	m.Secret[3] = 1
	f.Add(m.Pack())
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Memory
		var err error
		decodetest.Bounded(t, len(b), func() { d, err = UnpackMemory(b) })
		if err != nil {
			return
		}
		again, err := UnpackMemory(d.Pack())
		if err != nil || again != d {
			t.Fatalf("%+v packs to %+v, %v", d, again, err)
		}
	})
}
