// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
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

func TestOutboundTagsAreBounded(t *testing.T) {
	a, _, _ := pair(t, 64, BackendTCP, nil)
	o := &a.store.peerOf("b").tags
	o.mu.Lock()
	o.sending = true // nobody takes any
	o.mu.Unlock()
	for uid := range uint64(maxTags + 5) {
		o.add(tagged{uid: uid, tag: "t"})
	}
	waiting, dropped := o.state()
	if waiting != maxTags || dropped != 5 {
		t.Errorf("%d wait, %d dropped", waiting, dropped)
	}
	o.mu.Lock()
	o.sending = false
	o.mu.Unlock()
}

func TestInboundTagsAreBounded(t *testing.T) {
	var in inboundTags
	peer := identity{key: "peer", incarnation: 1}
	for uid := range uint64(maxTags + 10) {
		in.add(peer, true, []tagged{{uid: uid, tag: "t"}})
		in.add(peer, true, []tagged{{uid: uid, tag: "u"}}) // the same transfer again
	}
	if n := len(in.peers[peer].tags); n != maxTags {
		t.Errorf("%d tags of a peer, want %d", n, maxTags)
	}
	if _, ok := in.find(peer, 9); ok {
		t.Error("the oldest is still there")
	}
	if tag, ok := in.find(peer, 10); !ok || tag != "u" {
		t.Errorf("%q, %v", tag, ok)
	}
	for i := range maxTags + 10 { // each under a key of its own
		in.add(identity{key: fmt.Sprint("stranger", i), incarnation: 1}, false, []tagged{{uid: 1, tag: "t"}})
	}
	in.add(identity{key: strings.Repeat("k", maxTagKey+1), incarnation: 1}, false, []tagged{{uid: 1, tag: "t"}})
	if len(in.others.tags) != maxTags || len(in.peers) != 1 {
		t.Errorf("%d tags of strangers, %d tables", len(in.others.tags), len(in.peers))
	}
	if _, ok := in.find(peer, 10); !ok {
		t.Error("strangers pushed a peer's tag out")
	}
	in.forget(func(who identity) bool { return who.key == "peer" && who.incarnation != 1 })
	if _, ok := in.find(peer, maxTags); !ok {
		t.Error("the incarnation to be kept is forgotten")
	}
	in.forget(func(who identity) bool { return who == peer })
	if _, ok := in.find(peer, maxTags); ok {
		t.Error("found after it was forgotten")
	}
	in.forget(func(who identity) bool { return who.key == "stranger77" })
	if _, ok := in.find(identity{key: "stranger77", incarnation: 1}, 1); ok || len(in.others.tags) != maxTags-1 || len(in.others.age) != maxTags-1 {
		t.Errorf("a forgotten stranger: %v, %d tags, %d keys", ok, len(in.others.tags), len(in.others.age))
	}
	in.add(identity{key: "newcomer", incarnation: 1}, false, []tagged{{uid: 1, tag: "t"}})
	in.add(identity{key: "newcomer", incarnation: 1}, false, []tagged{{uid: 2, tag: "t"}})
	if _, ok := in.find(identity{key: "stranger10", incarnation: 1}, 1); ok || len(in.others.tags) != maxTags {
		t.Errorf("the oldest stranger should go first: %v, %d tags", ok, len(in.others.tags))
	}
}

func TestStrangersCannotSendBadTags(t *testing.T) {
	a, _, s := pair(t, 64, BackendRDMA, nil)
	for name, packed := range map[string][]byte{"region cut short": {0, 1}, "cut short": {5}, "text cut short": {5, 3, 'a'}, "empty": {5, 0}, "not UTF-8": {5, 1, 0xff},
		"too long": append([]byte{5, 65}, bytes.Repeat([]byte("x"), 65)...), "endless uid": bytes.Repeat([]byte{0xff}, 20)} {
		c := dialControl(t, a.Engine)
		if kind, _, why := newCaller(t, "x", 5, a).greet(t, c); kind != controlWelcome {
			t.Fatalf("%v %s", kind, why)
		}
		if name != "region cut short" {
			packed = append(append([]byte{0}, make([]byte, 16)...), append([]byte{1}, packed...)...)
		}
		_ = writeControl(c, controlTags, &tagsSent{Packed: packed})
		if kind, _, err := readControl(c); err != nil || kind != controlError {
			t.Errorf("%s: answered %v, %v", name, kind, err)
		}
		if _, ok := a.InboundTag("x", 5); ok {
			t.Errorf("%s: was taken", name)
		}
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
}

func FuzzUnpackTags(f *testing.F) {
	f.Add(packTags([]tagged{{uid: 0, tag: "a"}, {1 << 63, "req-7", regionKey{7, [16]byte{1}}}, {300, strings.Repeat("é", MaxTag/2), regionKey{7, [16]byte{1}}}}))
	f.Add([]byte{5, 0})
	f.Add(packTags(slices.Repeat([]tagged{{tag: "a"}}, controlMaxBytes/3-10)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 'a'})
	f.Fuzz(func(t *testing.T, in []byte) {
		var all []tagged
		var err error
		decodetest.Bounded(t, len(in), func() { all, err = unpackTags(in) })
		if err != nil {
			return
		}
		for _, x := range all {
			if x.tag == "" || checkTag(x.tag) != nil {
				t.Fatalf("tag %q", x.tag)
			}
		}
		if again, err := unpackTags(packTags(all)); err != nil || !slices.Equal(all, again) {
			t.Fatalf("%v: %v, then %v", err, all, again)
		}
	})
}

func TestABatchOfTheLongestTagsFitsAMessage(t *testing.T) {
	all := make([]tagged, tagBatchMost)
	for i := range all {
		all[i] = tagged{1<<64 - 1, strings.Repeat("x", MaxTag), regionKey{id: 1<<32 - 1 - uint32(i)}} // each of a region of its own
	}
	var out bytes.Buffer
	if err := writeControl(&out, controlTags, &tagsSent{Packed: packTags(all)}); err != nil {
		t.Error(err)
	}
}
