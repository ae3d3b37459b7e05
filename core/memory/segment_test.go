// SPDX-License-Identifier: MIT

package memory

import (
	"bytes"
	"context"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"mori/core/internal/sys"
)

func TestSegmentIsShared(t *testing.T) {
	mine, err := NewSegment("mori-test", 4096, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	share, err := NewSharer()
	if err != nil {
		t.Fatal(err)
	}
	ticket := share.Share(mine)
	theirs, err := OpenSegment(context.Background(), ticket)
	if err != nil {
		t.Fatal(err)
	}
	sys.Store64(mine.Addr()+8, 42)
	if got := sys.Load64(theirs.Addr() + 8); got != 42 {
		t.Errorf("the other mapping has %d, want 42", got)
	}
	if theirs.Size() != 4096 {
		t.Errorf("size %d, want 4096", theirs.Size())
	}
	if err := mine.Grow(8192); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Seen(); err != nil || theirs.Size() != 8192 {
		t.Fatalf("after growing: %d bytes, %v", theirs.Size(), err)
	}
	sys.Store64(theirs.Addr()+8184, 7)
	if got := sys.Load64(mine.Addr() + 8184); got != 7 {
		t.Errorf("the first mapping has %d, want 7", got)
	}
	for _, n := range []uint64{4096, 1<<20 + 1} {
		if mine.Grow(n) == nil {
			t.Errorf("a segment of 8192 bytes took %d", n)
		}
	}
	wrong := ticket
	wrong.Secret[0] ^= 1
	gone := share.Share(mine)
	share.Unshare(gone)
	for name, bad := range map[string]Ticket{"a wrong secret": wrong, "a segment that is not shared any more": gone} {
		if _, err := OpenSegment(context.Background(), bad); err == nil {
			t.Errorf("%s opens", name)
		}
	}
	if err := share.Close(); err != nil {
		t.Error(err)
	}
	if err := mine.Close(); err != nil {
		t.Error(err)
	}
	if got := sys.Load64(theirs.Addr() + 8); got != 42 {
		t.Errorf("the memory died with its maker's mapping: %d", got)
	}
	if err := theirs.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenSegment(context.Background(), ticket); err == nil {
		t.Error("a sharer that is closed still shares")
	}
}

func TestSegmentIsAligned(t *testing.T) {
	for _, limit := range []uint64{1, 4096, 5000, 1 << 20, 3 << 20, 1 << 33} {
		s, err := NewSegment("mori-test", 0, limit)
		if err != nil {
			t.Fatal(err)
		}
		align := uint64(1) << (bits.Len64(limit) - 1)
		if s.Addr()%align != 0 || s.Limit() != limit {
			t.Errorf("limit %d: %d bytes at %#x, want a multiple of %#x", limit, s.Limit(), s.Addr(), align)
		}
		if err := s.Grow(min(limit, 1<<20)); err != nil {
			t.Fatal(err)
		}
		sys.Bytes(s.Addr(), 1)[0] = 1
		sys.Bytes(s.Addr()+s.Size()-1, 1)[0] = 1
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileThatCouldShrinkIsNotMapped(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	share, err := NewSharer()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = share.Close() }()
	ticket := Ticket{Socket: share.listener.Addr().String(), Secret: share.secret, ID: 1, Limit: 1 << 16}
	share.files[1] = int(f.Fd())
	maps := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte("/"+filepath.Base(f.Name())))
	}
	if seg, err := OpenSegment(context.Background(), ticket); err == nil || seg != nil {
		t.Errorf("it is mapped: %v", seg)
	}
	if n := maps(); n != 0 {
		t.Errorf("%d mappings of it are left", n)
	}
}
