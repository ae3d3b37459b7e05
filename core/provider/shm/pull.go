// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
	"mori/core/provider/shm/internal/ring"
)

// pullNow is the largest message in bytes that the goroutine which finds it in the ring pulls
// itself. Workers pull larger ones. If both processes spin on 2 cores, a worker must wait for a
// processor: 4 MiB took 2100 us instead of 330 to 450.
const pullNow = 8 << 20

// startPull starts to pull a message from the sender's memory. It returns an error only if the
// peer's entry is invalid.
func (b *inbox) startPull(in *incoming) error {
	dp := b.path
	in.pulling = true
	err := b.readSegments(in)
	b.messages.Take(&in.head)
	if errors.Is(err, fabric.ErrProtocol) {
		return err
	}
	if err == nil {
		n := min(in.head.Length, in.receive.Len())
		in.pull = fabric.Op{Kind: fabric.OpRead, Seg: in.receive.Seg, More: in.receive.More, RSeg: in.segs[0], RMore: in.segs[1:]}
		if n > pullNow {
			if dp.ops.Enter() {
				j := dp.jobs.take()
				j.op, j.walk = &in.pull, newWalk(&in.pull, n, 0)
				dp.domain.pool.add(j)
			}
			return nil // if not, the connection has ended, and stop ends the message
		}
		err = dp.copies.pullHere(&in.pull, n)
	}
	return b.pulled(in, err)
}

// readSegments sets segs to the sender's memory as the entry describes it.
func (b *inbox) readSegments(in *incoming) error {
	e := &in.head
	n := int(e.Count) * ring.SegmentLen
	if cap(in.list) < n {
		in.list = make([]byte, n)
	}
	in.list = in.list[:n]
	if e.Kind == ring.MessageListed {
		copy(in.list, sys.Bytes(e.At, n))
	} else {
		local := []sys.Iovec{{Addr: sys.AddrOf(in.list), Len: uint64(n)}}
		remote := []sys.Iovec{{Addr: sys.Load64(e.At), Len: uint64(n)}}
		if err := b.path.copies.pullSlice(&slice{local: local, remote: remote, n: uint64(n)}); err != nil {
			return err
		}
	}
	return in.parseSegments()
}

// parseSegments decodes any list.
func (in *incoming) parseSegments() error {
	in.segs = in.segs[:0]
	total, over := uint64(0), uint64(0)
	for b := in.list; len(b) > 0; b = b[ring.SegmentLen:] {
		s := fabric.RSeg{Addr: binary.NativeEndian.Uint64(b), Len: binary.NativeEndian.Uint64(b[8:])}
		var carry, wrap uint64
		total, carry = bits.Add64(total, s.Len, 0)
		_, wrap = bits.Add64(s.Addr, s.Len, 0)
		over |= carry | wrap
		in.segs = append(in.segs, s)
	}
	if len(in.segs) == 0 || over != 0 || total != in.head.Length {
		return fmt.Errorf("message of %d bytes in %d segments of %d: %w", in.head.Length, len(in.segs), total, fabric.ErrProtocol)
	}
	return nil
}

// pullHere pulls the message on this thread.
func (c *copies) pullHere(op *fabric.Op, n uint64) error {
	s := sliceLists.Get().(*slice)
	defer sliceLists.Put(s)
	w := newWalk(op, n, 0)
	for w.left > 0 {
		w.next(s, sliceBytes)
		if err := c.pullSlice(s); err != nil {
			return err
		}
	}
	return nil
}

// errPeerEnded is the error of a message that was not pulled to its end. stop ends such a message,
// since it knows the cause.
var errPeerEnded = errors.New("the peer has ended the connection")

// pullSlice pulls one slice of a message.
func (c *copies) pullSlice(s *slice) error {
	if c.path.stopping.Load() || !c.path.notifier.ring.Fence().Enter() {
		return errPeerEnded
	}
	defer c.path.notifier.ring.Fence().Leave()
	moved, err := c.move(fabric.OpRead, s)
	switch cause := fabric.ErrnoOf(err); {
	case err == nil && uint64(moved) == s.n:
		return nil
	case cause == fabric.Errno(syscall.ESRCH):
		return errPeerEnded
	case cause == fabric.Errno(syscall.EFAULT) && !mapped(s.local):
		return local.OpFault(cause, "the receive's memory is not mapped: was it freed before the receive ended?")
	case cause == 0:
		return local.OpFault(fabric.ErrOther, "message of %s: the copy ended early", c.path.ep.Peer())
	default:
		return local.OpFault(cause, "message of %s from its process %d", c.path.ep.Peer(), c.path.greet.reach.pid)
	}
}

// pulled ends a pull.
func (b *inbox) pulled(in *incoming, err error) error {
	if err != nil && (errors.Is(err, errPeerEnded) || b.path.stopping.Load()) {
		return nil
	}
	in.pulling, in.pull = false, fabric.Op{}
	return b.received(in, err)
}

// finishPull is called by the pool when a pull ends.
func (dp *dataPath) finishPull(j *job, err error) {
	dp.jobs.release(j)
	b := &dp.inbox
	b.mu.Lock()
	if err = b.pulled(&b.incoming, err); err != nil {
		b.broken = true
	}
	b.mu.Unlock()
	dp.ops.Leave()
	if err != nil {
		dp.ep.Fail(fmt.Errorf("ring from %s: %w", dp.ep.Peer(), err))
		return
	}
	b.serve()
}
