// SPDX-License-Identifier: MIT

package proxy

import (
	"fmt"

	"mori/core/fabric"
)

// requests holds the requests that a queue has sent to the atomic servers of its peers. Only its
// thread uses them.
type requests struct {
	server *AtomicServer // this side's server, nil without one
	self   uint32
	peers  []Peer
	slots  [][]sentRequest // by PE and slot
	sent   []int           // by PE: number of requests without a reply
}

// A sentRequest belongs to the command at a position of the ring.
type sentRequest struct {
	position uint64
	pending  bool
}

func newRequests(c *Config) requests {
	r := requests{server: c.AtomicServer, self: uint32(c.Self), peers: c.Peers, sent: make([]int, len(c.Peers))}
	if r.server != nil {
		r.slots = make([][]sentRequest, len(c.Peers))
		for pe := range r.slots {
			r.slots[pe] = make([]sentRequest, r.server.slots)
		}
	}
	return r
}

// needed reports whether only the PE itself can execute an atomic on its region.
func (r *requests) needed(pe uint32, region *Remote) bool {
	return !region.Host && r.server != nil && r.peers[pe].Server.Len != 0
}

// pending returns the number of requests to a PE without a reply.
func (r *requests) pending(pe uint32) int { return r.sent[pe] }

// free returns a free slot for a request to a PE, or -1.
func (r *requests) free(pe uint32) int {
	for i := range r.slots[pe] {
		if !r.slots[pe][i].pending {
			return i
		}
	}
	return -1
}

// add returns the op that sends the request of the command at a position.
func (r *requests) add(position uint64, pe uint32, q request) (fabric.Op, error) {
	slot := r.free(pe)
	if slot < 0 { // the worker checks before
		return fabric.Op{}, fmt.Errorf("%d requests to PE %d have no reply: %w", r.server.slots, pe, fabric.ErrAgain)
	}
	q.ticket = position + 1
	from := r.server.requestOut(pe, slot)
	q.put(r.server.memory[from:])
	r.slots[pe][slot] = sentRequest{position, true}
	r.sent[pe]++
	return r.server.send(&r.peers[pe].Server, from, r.server.requestIn(r.self, slot), requestBytes, noticeOf(r.self, slot, false)), nil
}

// received reads the reply in a slot and returns the position of its command. It returns false if
// no command waits for it any more.
func (r *requests) received(pe uint32, slot int) (position uint64, got reply, ok bool) {
	mine := &r.slots[pe][slot]
	got.parse(r.server.memory[r.server.replyIn(pe, slot):])
	if !mine.pending || got.ticket != mine.position+1 {
		return 0, got, false
	}
	mine.pending = false
	r.sent[pe]--
	return mine.position, got, true
}

// drop discards the requests to a PE and calls dropped with the position of each one's command.
func (r *requests) drop(pe uint32, dropped func(position uint64)) {
	if r.server == nil {
		return
	}
	for slot := range r.slots[pe] {
		if mine := &r.slots[pe][slot]; mine.pending {
			mine.pending = false
			r.sent[pe]--
			dropped(mine.position)
		}
	}
}

// answer returns the op that sends a reply.
func (r *requests) answer(a *reply) fabric.Op {
	from := r.server.replyOut(a.pe, a.slot)
	a.put(r.server.memory[from:])
	return r.server.send(&r.peers[a.pe].Server, from, r.server.replyIn(r.self, a.slot), replyBytes, noticeOf(r.self, a.slot, true))
}
