// SPDX-License-Identifier: MIT

package conn

import (
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/staging"
)

// keepEntries is how long a list of segments may grow and still be kept for the next frame.
const keepEntries = 8 << 10

// A reply is the payload that a peer reads.
type reply struct {
	mr      *util.MR
	iov     []sys.Iovec
	entries int
	result  []byte // of atomic ops: where iov points

	// Of device memory: where iov points, and what the Stager's answer needs.
	buf    staging.Buffer
	from   *channel
	ticket uint32
	flags  uint16
}

// Iovecs is the payload; see socket.Reply.
func (r *reply) Iovecs() []sys.Iovec { return r.iov }

// A replies answers the peer's reads and atomics that arrive on a channel; see serve.go. It has the
// pending replies and their credit.
type replies struct {
	c       *channel
	reads   atomic.Int64
	entries atomic.Int64

	mu      sync.Mutex // protects what follows
	spare   []*reply
	serving []*reply // hold their region open
}

// open takes a reply to an op with n segments, unless the peer has asked for more than it may.
func (o *replies) open(n int, peer fabric.Addr) (*reply, error) {
	// Twice the sender's credit: it may use credit again before the reply here has ended.
	if o.reads.Add(1) > 2*frame.MaxReads || o.entries.Add(int64(n)) > 2*frame.MaxReadSegments {
		return nil, frame.ProtocolErr("more pending reads of %s than allowed", peer)
	}
	r := o.take()
	r.entries = n
	return r, nil
}

// take returns a spare reply, or a new one.
func (o *replies) take() *reply {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.spare); n > 0 {
		r := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return r
	}
	return &reply{}
}

// serve notes that r holds mr open.
func (o *replies) serve(r *reply, mr *util.MR) {
	o.mu.Lock()
	r.mr = mr
	o.serving = append(o.serving, r)
	o.mu.Unlock()
}

// end releases the region, if r has one, and gives the read's credit back.
func (o *replies) end(r *reply) {
	if r.mr != nil {
		r.mr.Release()
	}
	r.buf.Free()
	o.reads.Add(-1)
	o.entries.Add(-int64(r.entries))
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.serving, r); i >= 0 {
		o.serving = slices.Delete(o.serving, i, i+1)
	}
	r.mr = nil
	if r.iov = r.iov[:0]; cap(r.iov) > keepEntries {
		r.iov = nil
	}
	if len(o.spare) < frame.MaxReads {
		o.spare = append(o.spare, r)
	}
}

// holding reports whether a reply keeps a region open.
func (o *replies) holding(id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.serving, func(r *reply) bool { return r.mr.Key().ID == id })
}
