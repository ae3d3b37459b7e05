// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// MaxTag is the length of a transfer's tag, in bytes.
	MaxTag = 64

	maxTags      = 16384 // remembered of one peer, and waiting to be sent to one
	tagBatchMost = 512   // in one control message: at most 38 KiB
	maxTagKey    = 256   // longest key of an engine that is not registered here
	tagPause     = 2 * time.Millisecond
	tagPatience  = time.Second // for the control plane to take a batch
)

// checkTag refuses what is no tag; "" is none.
func checkTag(tag string) error {
	if len(tag) > MaxTag || !utf8.ValidString(tag) {
		return fmt.Errorf("tag of %d bytes, want at most %d of valid UTF-8: %w", len(tag), MaxTag, ErrInvalid)
	}
	return nil
}

// A tagged transfer.
type tagged struct {
	uid uint64
	tag string
}

// packTags encodes tags: the uid as a varint, one byte of length, the text.
func packTags(all []tagged) []byte {
	var out []byte
	for _, t := range all {
		out = binary.AppendUvarint(out, t.uid)
		out = append(out, byte(len(t.tag)))
		out = append(out, t.tag...)
	}
	return out
}

// unpackTags decodes what a stranger sent. Nothing is allocated beyond what came.
func unpackTags(in []byte) ([]tagged, error) {
	var out []tagged
	for len(in) > 0 {
		uid, n := binary.Uvarint(in)
		if n <= 0 || n == len(in) {
			return nil, fmt.Errorf("tags: cut short after %d: %w", len(out), ErrInvalid)
		}
		size, rest := int(in[n]), in[n+1:]
		if size > len(rest) || size == 0 || checkTag(string(rest[:size])) != nil {
			return nil, fmt.Errorf("tags: bad text after %d: %w", len(out), ErrInvalid)
		}
		out = append(out, tagged{uid, string(rest[:size])})
		in = rest[size:]
	}
	return out, nil
}

// outboundTags are those that the peer has still to be told of. A goroutine that runs only while there are some sends them in batches, over
// the control plane, so that a transfer without a tag pays nothing and one with a tag waits for nothing. What the peer does not
// take is dropped.
type outboundTags struct {
	peer *peer

	mu      sync.Mutex
	waiting []tagged
	sending bool
	dropped uint64
}

func (o *outboundTags) add(uid uint64, tag string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) >= maxTags {
		o.dropped++
		return
	}
	o.waiting = append(o.waiting, tagged{uid, tag})
	if !o.sending && o.peer.begin() {
		o.sending = true
		go o.send()
	}
}

// begin counts one more goroutine that works for p, unless p is closed.
func (p *peer) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return false
	}
	p.work.Add(1)
	return true
}

func (o *outboundTags) send() {
	defer o.peer.work.Done()
	for {
		batch := o.take()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(o.peer.stopped, tagPatience)
		err := o.peer.ctl.tell(ctx, batch)
		cancel()
		if err != nil {
			o.drop(len(batch))
			o.peer.engine.log.Debug("tags lost", "peer", o.peer.desc.Key, "tags", len(batch), "reason", err)
		}
		select {
		case <-time.After(tagPause): // the next batch is fuller
		case <-o.peer.stopped.Done():
		}
	}
}

// take returns the next batch. An empty one ends the sender.
func (o *outboundTags) take() []tagged {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.peer.stopped.Err() != nil {
		o.waiting = nil
	}
	n := min(len(o.waiting), tagBatchMost)
	batch := o.waiting[:n:n]
	if o.waiting = o.waiting[n:]; n == 0 {
		o.waiting, o.sending = nil, false
	}
	return batch
}

func (o *outboundTags) drop(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped += uint64(n)
}

// state is how many tags wait, and how many were dropped so far.
func (o *outboundTags) state() (waiting int, dropped uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting), o.dropped
}
