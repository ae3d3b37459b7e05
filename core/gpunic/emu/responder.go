// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"

	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/emu/wire"
)

// A responder is the half of a queue pair that executes the peer's requests, in the order of their
// sequence numbers.
type responder struct {
	*end
	receives receiveQueue
	writes   writeBuffer
	atomics  atomicLog

	expected uint32 // sequence number of the next packet
	refused  bool   // a NAK for a missing packet was sent to the peer
	message  message
	out      []outgoing

	failed bool // a request was refused: the queue pair must fail
}

// An atomicLog has the results of the last atomics. If the peer repeats a request, the atomic must
// not be executed twice.
type atomicLog struct {
	done [1 << logReads]oldAtomic
	next int
}

type oldAtomic struct {
	used bool
	seq  uint32
	data []byte
}

func (l *atomicLog) add(seq uint32, data []byte) {
	l.done[l.next%len(l.done)] = oldAtomic{used: true, seq: seq, data: data}
	l.next++
}

// find returns the result of the atomic with a sequence number.
func (l *atomicLog) find(seq uint32) (data []byte, ok bool) {
	for _, a := range l.done {
		if a.used && a.seq == seq {
			return a.data, true
		}
	}
	return nil, false
}

// An outgoing is a response to send: a packet, or the rest of a read.
type outgoing struct {
	wire.Packet
	reading bool
}

// ready starts receiving with a sequence number.
func (r *responder) ready(seq uint32) { r.expected = seq }

// reset forgets all received requests and pending responses.
func (r *responder) reset() {
	r.receives.reset()
	r.atomics, r.message = atomicLog{}, message{}
	r.expected, r.refused, r.out, r.failed = 0, false, nil, false
}

// request handles a request.
func (r *responder) request(p *wire.Packet) {
	switch d := wire.After(p.Seq, r.expected); {
	case d > 0:
		if !r.refused {
			r.refused = true
			r.answer(wire.NakSequence, r.expected, 0)
		}
	case d < 0:
		r.repeat(p)
	default:
		r.refused = false
		r.execute(p)
	}
}

// repeat resends a response that may have been lost.
func (r *responder) repeat(p *wire.Packet) {
	switch p.Kind {
	case wire.KindRead:
		if r.mayRead(p) {
			r.dropReads(p.Seq)
			r.out = append(r.out, outgoing{Packet: *p, reading: true})
		}
	case wire.KindAtomic:
		if data, ok := r.atomics.find(p.Seq); ok {
			r.reply(wire.Packet{Kind: wire.KindAtomicReply, Seq: p.Seq, Data: data})
		}
	default:
		r.answer(wire.AckOK, (r.expected-1)&wire.SeqMask, 0)
	}
}

// dropReads drops responses to reads from a sequence number on, since the peer requests all of them
// again.
func (r *responder) dropReads(from uint32) {
	kept := r.out[:0]
	for _, o := range r.out {
		if !o.reading || wire.After(o.Seq, from) < 0 {
			kept = append(kept, o)
		}
	}
	r.out = kept
}

// reply queues a packet, after the responses to earlier requests.
func (r *responder) reply(p wire.Packet) { r.out = append(r.out, outgoing{Packet: p}) }

// answer queues an acknowledgement.
func (r *responder) answer(ack uint8, seq uint32, code uint8) {
	r.reply(wire.Packet{Kind: wire.KindAck, Ack: ack, Seq: seq, Code: code})
}

// refuse responds with an error, and fails this side of the queue pair, too, once the response is
// sent.
func (r *responder) refuse(ack uint8, p *wire.Packet) {
	r.answer(ack, p.Seq, 0)
	r.serve()
	r.failed = true
}

func (r *responder) execute(p *wire.Packet) {
	switch p.Kind {
	case wire.KindSend:
		r.receive(p)
	case wire.KindWrite:
		r.write(p)
	case wire.KindRead:
		r.read(p)
	case wire.KindAtomic:
		r.change(p)
	}
}

// next advances past p, and acknowledges it if the peer requests that.
func (r *responder) next(p *wire.Packet) {
	r.expected = (p.Seq + 1) & wire.SeqMask
	if p.Flag&wire.FlagAckReq != 0 {
		r.writes.flush()
		r.answer(wire.AckOK, p.Seq, 0)
	}
}

// mayRead reports whether a read is allowed.
func (r *responder) mayRead(p *wire.Packet) bool {
	if !r.ctx.RemoteRead || p.Length > 1<<r.ctx.LogMsgMax {
		return false
	}
	_, err := r.Region(p.Key, p.Addr, p.Length, memory.ToRemoteRead)
	return err == nil || p.Length == 0
}

// read begins the response to a read.
func (r *responder) read(p *wire.Packet) {
	if r.message.open {
		r.refuse(wire.NakInvalid, p)
		return
	}
	if !r.mayRead(p) {
		r.refuse(wire.NakAccess, p)
		return
	}
	r.writes.flush()
	n := max(1, (p.Length+uint64(r.mtu())-1)/uint64(r.mtu()))
	r.out = append(r.out, outgoing{Packet: *p, reading: true})
	r.expected = (p.Seq + uint32(n)) & wire.SeqMask
}

// change executes an atomic.
func (r *responder) change(p *wire.Packet) {
	width := uint64(p.Atomic.Width)
	k, err := r.Region(p.Key, p.Addr, width, memory.ToAtomic)
	switch {
	case err != nil || !r.ctx.RemoteAtom:
		r.refuse(wire.NakAccess, p)
		return
	case p.Addr%width != 0 || r.message.open:
		r.refuse(wire.NakInvalid, p)
		return
	}
	r.writes.flush()
	old, err := memory.Change(k.Mem(), p.Addr, p.Atomic.Width, func(v uint64) uint64 { return memory.Operate(p.Code, p.Atomic, v) })
	if err != nil {
		r.refuse(wire.NakOperation, p)
		return
	}
	data := binary.LittleEndian.AppendUint64(nil, old)[:width]
	r.atomics.add(p.Seq, data)
	r.reply(wire.Packet{Kind: wire.KindAtomicReply, Seq: p.Seq, Data: data})
	r.expected = (p.Seq + 1) & wire.SeqMask
}

// serve sends responses.
func (r *responder) serve() (busy bool) {
	for budget := sendBudget; budget > 0 && len(r.out) > 0; budget-- {
		busy = true
		o := &r.out[0]
		if !o.reading {
			p := o.Packet
			r.out = r.out[1:]
			r.send(&p)
		} else if !r.readOn(o) {
			return true
		}
	}
	r.writes.flushSome()
	return busy
}

// readOn sends the next packet of the response to a read.
func (r *responder) readOn(o *outgoing) bool {
	p := wire.Packet{Kind: wire.KindReadReply, Seq: o.Seq, Data: make([]byte, min(uint64(r.mtu()), o.Length))}
	n := uint64(len(p.Data))
	if n > 0 {
		k, err := r.Region(o.Key, o.Addr, n, memory.ToRemoteRead)
		if err == nil {
			err = k.Mem().Read(o.Addr, p.Data)
		}
		if err != nil {
			request := o.Packet
			r.out = nil
			r.refuse(wire.NakOperation, &request)
			return false
		}
	}
	o.Seq, o.Addr, o.Length = (o.Seq+1)&wire.SeqMask, o.Addr+n, o.Length-n
	if o.Length == 0 {
		r.out = r.out[1:]
	}
	r.send(&p)
	return true
}
