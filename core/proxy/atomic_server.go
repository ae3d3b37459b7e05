// SPDX-License-Identifier: MIT

package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// Only a PE itself can execute atomics on its GPU's memory; CPUs behind a network cannot. A PE that
// needs one writes a request to the atomic server of the owner, in host memory, with a write that
// notifies the owner's queue (fabric.OpRemoteData). There Config.Atomics executes it on a
// goroutine, and the reply returns the same way. Each PE has AtomicServer.slots slots at each
// server. A slot is free again when its request has a reply.

// An AtomicServer is host memory into which peers write requests for atomics, and replies.
type AtomicServer struct {
	port   *Port
	memory []byte
	region Region
	pes    int
	slots  int
}

// Each of a server's four areas has a slot for each PE and request.
const (
	requestBytes = 64
	replyBytes   = 32

	mostServerSlots = 32
	serverEntries   = 1024 // requests of all PEs; the completion queue of a port has room for them and their replies
	mostServerPEs   = serverEntries
)

// NewAtomicServer creates the server of one of pes PEs. Its region is sent to the peers
// (Peer.Server).
func NewAtomicServer(port *Port, pes int) (_ *AtomicServer, err error) {
	if pes < 1 || pes > mostServerPEs {
		return nil, fmt.Errorf("an atomic server for %d PEs, want 1 to %d: %w", pes, mostServerPEs, ErrConfig)
	}
	s := &AtomicServer{port: port, pes: pes, slots: min(mostServerSlots, serverEntries/pes)}
	n := pes * s.slots * 2 * (requestBytes + replyBytes)
	if s.memory, err = sys.Alloc(n); err != nil {
		return nil, fmt.Errorf("make an atomic server for %d PEs: %w", pes, err)
	}
	s.region, err = port.Register(fabric.Buffer{Addr: sys.AddrOf(s.memory), Len: uint64(n)})
	if err != nil {
		return nil, errors.Join(err, sys.Free(s.memory))
	}
	return s, nil
}

// Shown returns the server's region, for peers.
func (s *AtomicServer) Shown() Shown {
	return Shown{Raw: s.region.Raw, Len: uint64(len(s.memory)), Host: true}
}

// Close frees the server, after the port and the queue were closed.
func (s *AtomicServer) Close() error {
	if s == nil || s.memory == nil {
		return nil
	}
	b := s.memory
	s.memory = nil
	return sys.Free(b)
}

// index returns the number of a slot of a PE in each area.
func (s *AtomicServer) index(pe uint32, slot int) uint64 { return uint64(int(pe)*s.slots + slot) }

// all returns the number of slots of an area.
func (s *AtomicServer) all() uint64 { return s.index(uint32(s.pes), 0) }

// Offsets of the slots of incoming and outgoing requests and replies.
func (s *AtomicServer) requestIn(pe uint32, slot int) uint64 { return s.index(pe, slot) * requestBytes }
func (s *AtomicServer) requestOut(pe uint32, slot int) uint64 {
	return (s.all() + s.index(pe, slot)) * requestBytes
}
func (s *AtomicServer) replyIn(pe uint32, slot int) uint64 {
	return s.all()*2*requestBytes + s.index(pe, slot)*replyBytes
}
func (s *AtomicServer) replyOut(pe uint32, slot int) uint64 {
	return s.all()*(2*requestBytes+replyBytes) + s.index(pe, slot)*replyBytes
}

// send returns the write of n bytes from an offset of this side's server to an offset of a peer's.
func (s *AtomicServer) send(to *Remote, from, at, n, notice uint64) fabric.Op {
	return fabric.Op{
		Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Data: notice,
		Seg:  fabric.Seg{Addr: sys.AddrOf(s.memory) + from, Len: n, MR: s.region.Desc},
		RSeg: fabric.RSeg{Addr: to.Base + at, Len: n, Key: to.Key},
	}
}

// A Change is an atomic that a peer requests.
type Change struct {
	Op             fabric.AtomicOp
	Word           int    // size of the word, 4 or 8
	Addr           uint64 // in the first local memory
	Value, Compare uint64
}

// A request is the message to a server. Its ticket distinguishes it from others in its slot.
type request struct {
	ticket, terms, offset, value, compare uint64
}

func (r *request) put(b []byte) {
	for i, v := range []uint64{r.ticket, r.terms, r.offset, r.value, r.compare} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

func (r *request) parse(b []byte) {
	for i, v := range []*uint64{&r.ticket, &r.terms, &r.offset, &r.value, &r.compare} {
		*v = binary.LittleEndian.Uint64(b[8*i:])
	}
}

// change validates a request for this side's memory, because it comes from outside.
func (r *request) change(own *Local) (Change, error) {
	c := Change{Op: fabric.AtomicOp(r.terms & 0xff), Word: int(r.terms >> 8 & 0xff), Addr: own.Addr + r.offset,
		Value: r.value, Compare: r.compare}
	kind := fabric.OpFetchAtomic
	if c.Op >= fabric.AtomicCSwap {
		kind = fabric.OpCompareAtomic
	}
	switch word := uint64(c.Word); {
	case word != 4 && word != 8 || !fabric.AtomicValid(kind, c.Op, typeOf(word)):
		return c, fmt.Errorf("%v of %d bytes: %w", c.Op, word, fabric.ErrInvalid)
	case r.offset > own.Len || word > own.Len-r.offset:
		return c, fmt.Errorf("%d bytes at %#x of %d: %w", word, r.offset, own.Len, fabric.ErrRange)
	case c.Addr%word != 0:
		return c, fmt.Errorf("%#x is not aligned to %d: %w", r.offset, word, fabric.ErrInvalid)
	}
	return c, nil
}

// A reply is the result of a request.
type reply struct {
	pe     uint32 // of the request
	slot   int
	ticket uint64
	old    uint64
	status uint32 // 0, or the errno
}

func (r *reply) put(b []byte) {
	for i, v := range []uint64{r.ticket, r.old, uint64(r.status)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

func (r *reply) parse(b []byte) {
	le := binary.LittleEndian
	r.ticket, r.old, r.status = le.Uint64(b), le.Uint64(b[8:]), uint32(le.Uint64(b[16:]))
}

// A notice is the remote data of a completion: the slot of a PE at its server, and whether it holds
// a reply.
const (
	noticeSlotBits = 8
	noticePEBits   = 20
	noticeReply    = 1 << (noticeSlotBits + noticePEBits)
)

func noticeOf(pe uint32, slot int, isReply bool) uint64 {
	n := uint64(pe)<<noticeSlotBits | uint64(slot)
	if isReply {
		n |= noticeReply
	}
	return n
}

// parseNotice is the inverse of noticeOf. It accepts any bits.
func parseNotice(n uint64) (pe uint32, slot int, isReply bool) {
	return uint32(n >> noticeSlotBits & (1<<noticePEBits - 1)), int(n & (1<<noticeSlotBits - 1)), n&noticeReply != 0
}
