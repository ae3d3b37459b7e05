// SPDX-License-Identifier: MIT

package arrivals

import (
	"fmt"
	"strings"
	"testing"

	"mori/io/internal/identity"
	"mori/io/internal/message"
)

func TestALogRemembersAndForgets(t *testing.T) {
	in := &Log{}
	for uid := range uint64(100_000) {
		in.Add(uid)
	}
	if !in.booked(0) || !in.booked(99_999) || in.booked(100_000) {
		t.Error("consecutive uids are not remembered")
	}
	for i := range uint64(2 * maxWords) {
		in.Add(1<<40 + i*64)
	}
	if len(in.words) > maxWords || len(in.age) > maxWords {
		t.Errorf("%d words kept, want at most %d", len(in.words), maxWords)
	}
	if in.booked(0) || !in.booked(1<<40+(2*maxWords-1)*64) {
		t.Error("the oldest should be forgotten, the newest kept")
	}
}

func TestTagsAreBounded(t *testing.T) {
	var in Tags
	peer := identity.ID{Key: "peer", Incarnation: 1}
	for uid := range uint64(maxTags + 10) {
		in.Add(peer, true, []message.Tag{{UID: uid, Text: "t"}})
		in.Add(peer, true, []message.Tag{{UID: uid, Text: "u"}}) // the same transfer again
	}
	if n := len(in.peers[peer].tags); n != maxTags {
		t.Errorf("%d tags of a peer, want %d", n, maxTags)
	}
	if _, ok := in.Find(peer, 9); ok {
		t.Error("the oldest is still there")
	}
	if tag, ok := in.Find(peer, 10); !ok || tag != "u" {
		t.Errorf("%q, %v", tag, ok)
	}
	for i := range maxTags + 10 { // each with a different key
		in.Add(identity.ID{Key: fmt.Sprint("stranger", i), Incarnation: 1}, false, []message.Tag{{UID: 1, Text: "t"}})
	}
	in.Add(identity.ID{Key: strings.Repeat("k", maxTagKey+1), Incarnation: 1}, false, []message.Tag{{UID: 1, Text: "t"}})
	if len(in.others.tags) != maxTags || len(in.peers) != 1 {
		t.Errorf("%d tags of strangers, %d tables", len(in.others.tags), len(in.peers))
	}
	if _, ok := in.Find(peer, 10); !ok {
		t.Error("strangers pushed a peer's tag out")
	}
	in.Forget(func(who identity.ID) bool { return who.Key == "peer" && who.Incarnation != 1 })
	if _, ok := in.Find(peer, maxTags); !ok {
		t.Error("the incarnation to be kept is forgotten")
	}
	in.Forget(func(who identity.ID) bool { return who == peer })
	if _, ok := in.Find(peer, maxTags); ok {
		t.Error("found after it was forgotten")
	}
	in.Forget(func(who identity.ID) bool { return who.Key == "stranger77" })
	if _, ok := in.Find(identity.ID{Key: "stranger77", Incarnation: 1}, 1); ok || len(in.others.tags) != maxTags-1 || len(in.others.age) != maxTags-1 {
		t.Errorf("a forgotten stranger: %v, %d tags, %d keys", ok, len(in.others.tags), len(in.others.age))
	}
	in.Add(identity.ID{Key: "newcomer", Incarnation: 1}, false, []message.Tag{{UID: 1, Text: "t"}})
	in.Add(identity.ID{Key: "newcomer", Incarnation: 1}, false, []message.Tag{{UID: 2, Text: "t"}})
	if _, ok := in.Find(identity.ID{Key: "stranger10", Incarnation: 1}, 1); ok || len(in.others.tags) != maxTags {
		t.Errorf("the oldest stranger should go first: %v, %d tags", ok, len(in.others.tags))
	}
}

// TestStrangersPushNoArrivalsOut checks that a registered engine's arrivals stay, however many
// identities other clients invent.
func TestStrangersPushNoArrivalsOut(t *testing.T) {
	peer := identity.ID{Key: "peer", Incarnation: 7}
	in := NewTable(func(who identity.ID) bool { return who == peer })
	in.Of(peer).Add(1)
	for i := range uint64(maxLogs + 100) {
		in.Of(identity.ID{Key: "stranger", Incarnation: i + 1})
	}
	if len(in.all) != maxLogs || !in.Has(peer, 1) {
		t.Errorf("%d identities are remembered, the peer's arrival: %v", len(in.all), in.Has(peer, 1))
	}
}

// A fixedSource records one arrival each time.
type fixedSource struct {
	log *Log
	uid uint64
}

func (s *fixedSource) Drain() { s.log.Add(s.uid) }

// A query about an arrival that is not recorded drains the connections of that engine, and only
// those that are still watched.
func TestQuestionsDrainTheSourcesOfAnEngine(t *testing.T) {
	table := NewTable(func(identity.ID) bool { return false })
	a, b := identity.ID{Key: "a"}, identity.ID{Key: "b"}
	src := &fixedSource{table.Of(a), 5}
	table.Of(a).Watch(src)
	if table.Has(b, 5) || table.Has(a, 6) || !table.Has(a, 5) {
		t.Error("the arrival that waits in a's connection is that of a, with its uid")
	}
	src.uid = 7
	table.Drain()
	if !table.Of(a).booked(7) {
		t.Error("Drain books nothing")
	}
	src.uid = 8
	table.Of(a).Unwatch(src)
	if table.Has(a, 8) {
		t.Error("a connection that is not watched was drained")
	}
	table.Forget(func(who identity.ID) bool { return who == a })
	if table.Has(a, 5) {
		t.Error("found after it was forgotten")
	}
}
