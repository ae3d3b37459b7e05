// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"strings"
	"testing"
)

func TestTagsAreSeenOnBothSides(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := pair(t, 4096, kind, nil)
		const n = 3000
		for uid := range uint64(n) {
			at := []uint64{0}
			st := s.Submit(&Request{Write: uid%3 != 0, Tag: fmt.Sprint("req-", uid), Local: at, Remote: at, Sizes: []uint64{8}, UID: uid})
			if uid == n-1 {
				succeed(t, st)
			}
		}
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, n))
		for uid := range uint64(n) {
			until(t, fmt.Sprint("tag ", uid), func() bool { _, ok := b.InboundTag("a", uid); return ok })
			if tag, _ := b.InboundTag("a", uid); tag != fmt.Sprint("req-", uid) {
				t.Fatalf("transfer %d has tag %q", uid, tag)
			}
		}
		for _, c := range []struct {
			key string
			uid uint64
		}{{"a", n}, {"a", n + 1}, {"b", 0}, {"nobody", 0}} {
			if tag, ok := b.InboundTag(c.key, c.uid); ok {
				t.Errorf("transfer %d of %q has tag %q", c.uid, c.key, tag)
			}
		}
		if i := a.Stats().Slowest[0]; i.Tag != "" && i.Tag != fmt.Sprint("req-", i.UID) {
			t.Errorf("%+v", i)
		}
		if s := a.Stats().Tags; s.Dropped != 0 {
			t.Errorf("%d tags dropped", s.Dropped)
		}
	})
}

// writeTagged writes n bytes at offset 0.
func writeTagged(s *Session, tag string, n, uid uint64) *Status {
	at := []uint64{0}
	return s.Submit(&Request{Write: true, Tag: tag, Local: at, Remote: at, Sizes: []uint64{n}, UID: uid})
}

func TestWhatIsNoTagIsRefused(t *testing.T) {
	_, b, s := pair(t, 64, BackendTCP, nil)
	for _, tag := range []string{strings.Repeat("x", MaxTag+1), "a\xff"} {
		if st := writeTagged(s, tag, 8, 1); st.Code() != CodeErrInvalidArgs || !strings.Contains(st.Message(), "tag of") {
			t.Errorf("%q: %v %s", tag, st.Code(), st.Message())
		}
	}
	long := strings.Repeat("é", MaxTag/2)
	succeed(t, writeTagged(s, long, 8, 2))
	until(t, "the longest tag", func() bool { tag, _ := b.InboundTag("a", 2); return tag == long })
}

func TestTagsOfAPeerThatIsGoneAreDropped(t *testing.T) {
	w := newWired(t, 64, nil)
	if err := w.b.Close(); err != nil {
		t.Fatal(err)
	}
	for uid := range uint64(10) {
		writeTagged(w.s, "x", 8, uid).Wait(deadline(t))
	}
	until(t, "all tags are dropped", func() bool { s := w.a.Stats().Tags; return s.Dropped == 10 && s.Waiting == 0 })
}
