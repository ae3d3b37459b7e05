// SPDX-License-Identifier: MIT

package proxy

import (
	"sync/atomic"

	"mori/native/abi"
)

// A pendingCommand was read from the ring and has not completed.
type pendingCommand struct {
	pe    uint32
	kind  kind
	word  uint8
	left  int // incomplete ops and requests, plus one until all have been built
	bytes uint64
	done  bool
}

// A ring is the host's side of the ring that kernels post to: the next command to read, and the
// pending ones. Only the queue's thread uses it.
type ring struct {
	places  *places
	log     int
	pending []pendingCommand
	next    uint64 // position of the next command to read
	tail    uint64 // position of the first pending command
	bytes   uint64 // size of pending puts and gets

	held  command // the command was read, and waits for others; see holds
	holds bool
}

func (r *ring) slot(position uint64) uint64 { return position & uint64(len(r.pending)-1) }

func (r *ring) command(position uint64) *pendingCommand { return &r.pending[r.slot(position)] }

// peek reads the next command, if it is complete. Call take or hold next.
func (r *ring) peek() (command, bool) {
	if r.holds {
		return r.held, true
	}
	if r.next-r.tail == uint64(len(r.pending)) {
		return command{}, false // the command of the previous lap is pending
	}
	slot := r.slot(r.next)
	words := &r.places.ring[slot]
	first, second := atomic.LoadUint64(&words.First), atomic.LoadUint64(&words.Second)
	if lap := lapOf(r.next, r.log); first&lapBit != 0 != lap || second&lapBit != 0 != lap {
		return command{}, false
	}
	return decode(first, second, &r.places.details[slot]), true
}

// hold keeps a command for the next peek.
func (r *ring) hold(c command) { r.held, r.holds = c, true }

// take makes a command pending and returns its position.
func (r *ring) take(c *command) (position uint64) {
	position = r.next
	r.next++
	r.holds = false
	*r.command(position) = pendingCommand{pe: c.pe, kind: c.kind, word: c.word, left: 1}
	return position
}

// ended records that one part of a command has ended. The last part completes the command.
func (r *ring) ended(position uint64) {
	p := r.command(position)
	if p.left--; p.left == 0 {
		r.finish(position)
	}
}

// finish completes a command. The result of a fetch is valid once its ticket is stored.
func (r *ring) finish(position uint64) {
	p := r.command(position)
	if p.kind == kindFetch {
		result := r.result(position)
		if p.word == 4 {
			atomic.StoreUint64(&result.Value, uint64(uint32(atomic.LoadUint64(&result.Value))))
		}
		atomic.StoreUint64(&result.Ticket, position+1)
	}
	r.bytes -= p.bytes
	p.left, p.done = 0, true
}

// result returns the address for the result of a fetch.
func (r *ring) result(position uint64) *abi.ProxyResult { return &r.places.results[r.slot(position)] }

// operand stores the words of a command until it completes.
func (r *ring) operand(position, value, compare uint64) *operands {
	o := &r.places.operands[r.slot(position)]
	atomic.StoreUint64(&o.value, value)
	atomic.StoreUint64(&o.compare, compare)
	return o
}

// retire frees the slots of completed commands, in ring order, and reports whether there were any.
func (r *ring) retire() bool {
	before := r.tail
	for r.tail != r.next && r.command(r.tail).done {
		r.command(r.tail).done = false
		r.tail++
	}
	return r.tail != before
}
