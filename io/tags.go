// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// MaxTag is the length of a transfer's tag, in bytes.
	MaxTag = 64

	maxTags      = 16384 // remembered of one peer, and waiting to be sent to one
	tagBatchMost = 512   // in one control message: at most 49 KiB
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

// A tagged transfer, and the region of the peer's that it is to or from.
type tagged struct {
	uid    uint64
	tag    string
	region regionKey
}

// A regionKey is the right to touch a region, as a MemoryDesc carries it.
type regionKey struct {
	id     uint32
	secret [16]byte
}

// packTags encodes tags. Those of one region follow its id as a varint, its secret, and their number as a varint; each is the uid as a
// varint, one byte of length, the text.
func packTags(all []tagged) []byte {
	var out []byte
	for i, t := range all {
		if i == 0 || t.region != all[i-1].region {
			n := 1
			for i+n < len(all) && all[i+n].region == t.region {
				n++
			}
			out = binary.AppendUvarint(out, uint64(t.region.id))
			out = append(out, t.region.secret[:]...)
			out = binary.AppendUvarint(out, uint64(n))
		}
		out = binary.AppendUvarint(out, t.uid)
		out = append(out, byte(len(t.tag)))
		out = append(out, t.tag...)
	}
	return out
}

// unpackTags decodes the tags of one control message, tagBatchMost at most. A tag of 3 bytes
// becomes 48 here, so the number is what bounds the memory that a peer makes us allocate.
func unpackTags(in []byte) ([]tagged, error) {
	var out []tagged
	var region regionKey
	for left := uint64(0); len(in) > 0 || left > 0; left-- {
		if left == 0 {
			if in, left = region.unpack(in); left == 0 {
				return nil, fmt.Errorf("tags: bad region after %d: %w", len(out), ErrInvalid)
			}
		}
		if len(out) == tagBatchMost {
			return nil, fmt.Errorf("tags: more than %d in a message: %w", tagBatchMost, ErrInvalid)
		}
		uid, n := binary.Uvarint(in)
		if n <= 0 || n == len(in) {
			return nil, fmt.Errorf("tags: cut short after %d: %w", len(out), ErrInvalid)
		}
		size, rest := int(in[n]), in[n+1:]
		if size > len(rest) || size == 0 || checkTag(string(rest[:size])) != nil {
			return nil, fmt.Errorf("tags: bad text after %d: %w", len(out), ErrInvalid)
		}
		out = append(out, tagged{uid, string(rest[:size]), region})
		in = rest[size:]
	}
	return out, nil
}

// unpack reads a region and the number of its tags, 0 if it cannot.
func (r *regionKey) unpack(in []byte) (rest []byte, tags uint64) {
	id, n := binary.Uvarint(in)
	if n <= 0 || id > math.MaxUint32 || len(in) < n+len(r.secret) {
		return nil, 0
	}
	r.id = uint32(id)
	copy(r.secret[:], in[n:])
	in = in[n+len(r.secret):]
	tags, n = binary.Uvarint(in)
	if n <= 0 || tags > uint64(len(in)) {
		return nil, 0
	}
	return in[n:], tags
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

func (o *outboundTags) add(t tagged) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) >= maxTags {
		o.dropped++
		return
	}
	o.waiting = append(o.waiting, t)
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
