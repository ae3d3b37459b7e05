// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// The two vectors that other implementations of the format agree on.
const goldenEngine = "96a3656e67a46e6f6465a2686ea93132372e302e302e31cd10924d"

var goldenMemory = "9fa000ffa0000000c440" + strings.Repeat("00", 64) + "ff00c440" + strings.Repeat("00", 64) + "ffa00000"

func TestEngineDescGoldenVector(t *testing.T) {
	d := EngineDesc{Key: "eng", NodeID: "node", Hostname: "hn", Host: "127.0.0.1", Port: 4242, PID: 77}
	if got := hex.EncodeToString(d.Pack()); got != goldenEngine {
		t.Errorf("Pack = %s, want %s", got, goldenEngine)
	}
	raw, _ := hex.DecodeString(goldenEngine)
	if got, err := UnpackEngineDesc(raw); err != nil || got != d {
		t.Errorf("Unpack = %+v, %v; want %+v", got, err, d)
	}
}

func TestMemoryDescGoldenVector(t *testing.T) {
	if got := hex.EncodeToString(NewMemoryDesc().Pack()); got != goldenMemory {
		t.Errorf("Pack = %s, want %s", got, goldenMemory)
	}
}

func TestDescsSurviveTheTrip(t *testing.T) {
	e := EngineDesc{Key: strings.Repeat("k", 300), NodeID: "n", Port: 65535, PID: 1 << 22, Incarnation: 1 << 63}
	if got, err := UnpackEngineDesc(e.Pack()); err != nil || got != e {
		t.Errorf("engine: %+v, %v", got, err)
	}
	m := NewMemoryDesc()
	m.EngineKey, m.ID, m.Data, m.Size, m.Loc, m.NUMANode = "e", 1<<32-1, 1<<64-1, 1<<40, LocCPU, 1
	m.Secret, m.Incarnation, m.IPCHandle, m.VPodPPodID = [16]byte{1, 2}, 9, [64]byte{7}, "p"
	if got, err := UnpackMemoryDesc(m.Pack()); err != nil || got != m {
		t.Errorf("memory: %+v, %v", got, err)
	}
}

func TestUnpackIsLenientWhereTheFormatIs(t *testing.T) {
	short := []byte{0x92, 0xa1, 'k', 0xc4, 0x01, 'n'} // two elements, the second a bin
	if d, err := UnpackEngineDesc(short); err != nil || d.Key != "k" || d.NodeID != "n" || d.Port != 0 {
		t.Errorf("short array with bin: %+v, %v", d, err)
	}
	raw, _ := hex.DecodeString(goldenEngine)
	if _, err := UnpackEngineDesc(append(raw, "trailing"...)); err != nil {
		t.Errorf("trailing bytes: %v", err)
	}
	long := append([]byte{0x9a}, raw[1:]...)
	long = append(long, 0xa1, 'x', 0x02, 0xc0, 0xc0) // 10 elements, the last four unknown to us
	if d, err := UnpackEngineDesc(long); err != nil || d.Incarnation != 0 || d.PID != 77 {
		t.Errorf("long array: %+v, %v", d, err)
	}
	foreign := append([]byte{0x97}, raw[1:]...)
	foreign = append(foreign, 0xc4, 0x03, 1, 2, 3) // a bin that is not ours
	if d, err := UnpackEngineDesc(foreign); err != nil || d.Incarnation != 0 {
		t.Errorf("a foreign bin behind: %+v, %v", d, err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	raw, _ := hex.DecodeString(goldenEngine)
	for name, b := range map[string][]byte{
		"empty": nil, "truncated": raw[:len(raw)-3], "a map": {0x81, 1, 2}, "a number for a text": {0x91, 7}, "random": {0xc1, 0xff}, "nil": {0xc0},
		"huge": bytes.Repeat([]byte{0x91}, maxDescBytes+1), "a text that claims 4 GiB": {0x91, 0xdb, 0xff, 0xff, 0xff, 0xff, 'x'},
	} {
		if d, err := UnpackEngineDesc(b); !errors.Is(err, ErrInvalid) {
			t.Errorf("engine from %s: %+v, %v; want ErrInvalid", name, d, err)
		}
		if d, err := UnpackMemoryDesc(b); !errors.Is(err, ErrInvalid) {
			t.Errorf("memory from %s: %+v, %v; want ErrInvalid", name, d, err)
		}
	}
}

func FuzzUnpackEngineDesc(f *testing.F) {
	raw, _ := hex.DecodeString(goldenEngine)
	f.Add(raw)
	f.Add(EngineDesc{Key: "k", Incarnation: 5}.Pack())
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := UnpackEngineDesc(b)
		if err != nil {
			return
		}
		again, err := UnpackEngineDesc(d.Pack())
		if err != nil || again != d {
			t.Fatalf("%+v packs to %+v, %v", d, again, err)
		}
	})
}

func FuzzUnpackMemoryDesc(f *testing.F) {
	raw, _ := hex.DecodeString(goldenMemory)
	f.Add(raw)
	m := NewMemoryDesc()
	m.Secret[3] = 1
	f.Add(m.Pack())
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := UnpackMemoryDesc(b)
		if err != nil {
			return
		}
		again, err := UnpackMemoryDesc(d.Pack())
		if err != nil || again != d {
			t.Fatalf("%+v packs to %+v, %v", d, again, err)
		}
	})
}
