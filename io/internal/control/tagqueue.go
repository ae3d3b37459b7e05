// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"sync"
	"time"

	"mori/io/internal/message"
)

const (
	mostWaiting = 16384                // tags that wait to be sent to one peer
	tagPause    = 2 * time.Millisecond // between two batches
	tagPatience = time.Second          // for the control plane to take a batch
)

// A TagQueue sends the tags of transfers to one peer. A goroutine sends them in batches and runs
// only while tags are queued. So a tag does not delay its transfer, and a transfer without a tag
// costs nothing here. Tags that the peer does not take are dropped.
type TagQueue struct {
	client *Client
	ctx    context.Context        // done when the registration of the peer ends
	spawn  func(func()) (ok bool) // runs a function in a goroutine, unless the peer is closed

	mu      sync.Mutex
	waiting []message.Tag
	sending bool
	dropped uint64
}

// NewTagQueue returns an empty queue. It sends until ctx is done, in a goroutine that spawn starts.
func NewTagQueue(ctx context.Context, client *Client, spawn func(func()) (ok bool)) *TagQueue {
	return &TagQueue{client: client, ctx: ctx, spawn: spawn}
}

// Add queues a tag. It does not block.
func (q *TagQueue) Add(t message.Tag) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= mostWaiting {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, t)
	if !q.sending {
		q.sending = q.spawn(q.send)
	}
}

// State returns the number of queued tags and of tags dropped so far.
func (q *TagQueue) State() (waiting int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.dropped
}

func (q *TagQueue) send() {
	for {
		batch := q.next()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(q.ctx, tagPatience)
		err := q.client.SendTags(ctx, batch)
		cancel()
		if err != nil {
			q.drop(len(batch))
			q.client.self.Log.Debug("tags lost", "peer", q.client.peer.Key, "tags", len(batch),
				"reason", err)
		}
		select {
		case <-time.After(tagPause): // so that the next batch is fuller
		case <-q.ctx.Done():
		}
	}
}

// next returns the next batch. An empty one ends the sender.
func (q *TagQueue) next() []message.Tag {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil {
		q.waiting = nil
	}
	n := min(len(q.waiting), message.MostTags)
	batch := q.waiting[:n:n]
	if q.waiting = q.waiting[n:]; n == 0 {
		q.waiting, q.sending = nil, false
	}
	return batch
}

func (q *TagQueue) drop(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped += uint64(n)
}
