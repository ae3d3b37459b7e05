// SPDX-License-Identifier: MIT

package fabric

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"mori/core/decode/decodetest"
)

func TestErrnoIs(t *testing.T) {
	for _, c := range []struct {
		err, target error
		want        bool
	}{
		{ErrAgain, syscall.EAGAIN, true},
		{fmt.Errorf("submit: %w", ErrAgain), syscall.EAGAIN, true},
		{ErrAgain, ErrAgain, true},
		{ErrAgain, syscall.EBUSY, false},
		{ErrNotSupported, errors.ErrUnsupported, true},
		{ErrNoSys, errors.ErrUnsupported, true},
		{ErrPerm, errors.ErrUnsupported, false},
		{ErrOther, syscall.Errno(256), false},
		{&RejectError{Peer: "p"}, ErrConnRefused, true},
		{&ErrEntry{Err: ErrRange}, ErrRange, true},
	} {
		if got := errors.Is(c.err, c.target); got != c.want {
			t.Errorf("errors.Is(%v, %v) is %v", c.err, c.target, got)
		}
	}
}

func TestErrnoOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Errno
	}{
		{nil, 0},
		{ErrRange, ErrRange},
		{fmt.Errorf("write: %w", syscall.EPIPE), Errno(syscall.EPIPE)},
		{fmt.Errorf("write: %w", fmt.Errorf("more: %w", ErrCRC)), ErrCRC},
		{io.EOF, ErrOther},
		{&RejectError{}, ErrConnRefused},
	} {
		if got := ErrnoOf(c.err); got != c.want {
			t.Errorf("ErrnoOf(%v) is %v, want %v", c.err, got, c.want)
		}
	}
}

func TestErrnoHasWords(t *testing.T) {
	for _, e := range []Errno{ErrTooSmall, ErrOpBadState, ErrAvail, ErrBadFlags, ErrNoEQ, ErrNoCQ, ErrCRC, ErrTruncated, ErrNoKey,
		ErrOverrun, ErrNoMR, ErrClosed, ErrOther} {
		if _, ok := fabricErrnoText[e]; !ok {
			t.Errorf("%d has no words", e)
		}
	}
	if got := Errno(999).Error(); got != "fabric error 999" {
		t.Errorf("got %q", got)
	}
}

func TestRegionKeyRaw(t *testing.T) {
	k := RegionKey{ID: 0x0102030405060708, Secret: [16]byte{15: 9}}
	raw := k.Raw(1 << 40)
	got, size, err := ParseRegionKey(raw)
	if err != nil || got != k || size != 1<<40 || len(raw) != RegionKeyRawLen {
		t.Fatalf("got %v, %d, %v", got, size, err)
	}
	for _, bad := range [][]byte{nil, raw[:len(raw)-1], append(raw[:len(raw):len(raw)], 0), make([]byte, RegionKeyRawLen)} {
		if _, _, err := ParseRegionKey(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%x: got %v", bad, err)
		}
	}
}

func FuzzParseRegionKey(f *testing.F) {
	f.Add(RegionKey{ID: 7}.Raw(4096))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var k RegionKey
		var size uint64
		var err error
		decodetest.Bounded(t, len(raw), func() { k, size, err = ParseRegionKey(raw) })
		if err == nil && string(k.Raw(size)) != string(raw) {
			t.Fatalf("%x does not come back", raw)
		}
	})
}
