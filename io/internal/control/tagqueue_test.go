// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"testing"

	"mori/io/internal/descriptor"
	"mori/io/internal/message"
)

func TestWaitingTagsAreBounded(t *testing.T) {
	c := newClient(t, newEngine(t, "a", "").desc, "")
	started := 0
	q := NewTagQueue(context.Background(), c, func(func()) bool { started++; return true }) // the sender never runs
	for uid := range uint64(mostWaiting + 5) {
		q.Add(message.Tag{UID: uid, Text: "t"})
	}
	if waiting, dropped := q.State(); waiting != mostWaiting || dropped != 5 || started != 1 {
		t.Errorf("%d wait, %d dropped, %d senders", waiting, dropped, started)
	}
}

func TestTagsAreSentInBatches(t *testing.T) {
	a := newEngine(t, "a", "")
	q := NewTagQueue(context.Background(), newClient(t, a.desc, ""), func(f func()) bool { go f(); return true })
	const n = 3*message.MostTags + 1
	for uid := range uint64(n) {
		q.Add(message.Tag{UID: uid, Text: "t", Region: descriptor.RegionKey{ID: 1}})
	}
	until(t, "all tags are sent", func() bool {
		a.host.mu.Lock()
		defer a.host.mu.Unlock()
		return len(a.host.tags) == n
	})
	for uid, tag := range a.host.tags {
		if tag.UID != uint64(uid) {
			t.Fatalf("tag %d is of transfer %d", uid, tag.UID)
		}
	}
	if waiting, dropped := q.State(); waiting != 0 || dropped != 0 {
		t.Errorf("%d wait, %d dropped", waiting, dropped)
	}
}
