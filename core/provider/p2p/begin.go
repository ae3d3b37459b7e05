// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// An outcome is what became of an op, or of an order.
type outcome int

const (
	begun    outcome = iota // it is on its way, or has ended
	byStream                // no way but the stream
	notYet                  // it takes more than a look to know: begin again, with wait
)

// errStream is why an op goes by the stream without any of that being slow or worth a word.
var errStream = errors.New("nothing to copy by a GPU")

// errNotYet: what is needed is not known yet.
var errNotYet = errors.New("not known yet")

// begin sets an op on its way. Without wait it takes no driver's call but the launch.
func (dp *dataPath) begin(f *flight, key fabric.RegionKey, wait bool) outcome {
	l := dp.holder.Find(key)
	if l == nil || !l.Await(wait, dp.Stopped) {
		if l != nil && !wait {
			return notYet
		}
		dp.end(f, dp.Cause())
		return begun
	}
	gpu := firstOnDevice(f.op)
	if l.Refused != 0 || l.Region.kind == fabric.MemHost && gpu == nil {
		return byStream // the target reports the cause of a refusal, too
	}
	if err := grant.Check(f.op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		dp.end(f, err)
		return begun
	}
	if l.Region.kind == fabric.MemHost && !dp.greet.same {
		return dp.beginOrder(f, l, wait)
	}
	if err := dp.enter(f, l); err != nil {
		dp.end(f, err)
		return begun
	}
	err := dp.prepare(f, l, gpu, wait)
	if err == nil && wait && dp.theirs.IsClosed() { // it took so long that the peer may not have waited for it
		dp.end(f, local.OpFault(fabric.ErrConnReset, "%s closed the connection", dp.ep.Peer()))
		return begun
	}
	if err == nil {
		dp.takeOff(f)
		return begun
	}
	f.release()
	if !dp.greet.same && gpu != nil && errors.Is(err, errUnreachable) {
		if o := dp.beginOrder(f, l, wait); o != byStream { // perhaps the peer reaches ours
			return o
		}
	}
	return dp.otherwise(f, err)
}

// errUnreachable: the copying device has no way to the peer's region.
var errUnreachable = errors.New("the peer's region is out of reach")

// otherwise is what becomes of an op that could not be prepared because of err.
func (dp *dataPath) otherwise(f *flight, err error) outcome {
	var fault fabric.Errno
	switch {
	case errors.Is(err, errNotYet):
		return notYet
	case errors.Is(err, errStream):
		return byStream
	case errors.As(err, &fault) && fault == fabric.ErrNoMR || errors.Is(err, fabric.ErrRange):
		dp.end(f, err)
		return begun
	}
	dp.slow(err)
	return byStream
}

// enter passes everything that may forbid a copy in the peer's memory.
func (dp *dataPath) enter(f *flight, l *regionGrant) error {
	if !l.Use.Enter() {
		return local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.Key.ID)
	}
	if !dp.theirs.Enter() {
		l.Use.Leave()
		return local.OpFault(fabric.ErrConnReset, "%s closed the connection", dp.ep.Peer())
	}
	f.grant = l
	return nil
}

// firstOnDevice is the op's first local segment of device memory.
func firstOnDevice(op *fabric.Op) *fabric.Seg {
	if op.Seg.MR != 0 {
		return &op.Seg
	}
	for i := range op.More {
		if op.More[i].MR != 0 {
			return &op.More[i]
		}
	}
	return nil
}

// prepare chooses the device and lists what it copies.
func (dp *dataPath) prepare(f *flight, l *regionGrant, gpu *fabric.Seg, wait bool) error {
	d, err := dp.copier(f, l, gpu)
	if err != nil {
		return err
	}
	if err := dp.board(f, l, way{d, f.op.Kind == fabric.OpRead}, wait); err != nil {
		return err
	}
	at, _ := l.Region.mapped(d)
	if f.op.Blocks != nil {
		return dp.listBlocks(f, at.addr, wait)
	}
	return dp.list(f, at.addr, wait)
}

// copier is the device that copies: the one of the local memory, else one that is near the peer's.
func (dp *dataPath) copier(f *flight, l *regionGrant, gpu *fabric.Seg) (*device.Device, error) {
	if gpu == nil {
		return l.Region.near()
	}
	h, err := dp.holdDevice(f, gpu)
	if err != nil {
		return nil, err
	}
	h.reached = true // it is this device's own
	return deviceOf(h.mr.Buffer())
}

// board gives f a lane and makes l's place known to the device that copies.
func (dp *dataPath) board(f *flight, l *regionGrant, w way, wait bool) (err error) {
	d := w.dev
	if f.lane = dp.domain.engine.laneOf(w); f.lane == nil {
		if !wait {
			return errNotYet
		}
		if f.lane, err = dp.domain.engine.openLane(w); err != nil {
			return err
		}
	}
	at, ok := l.Region.mapped(d)
	if !ok {
		if !wait {
			return errNotYet
		}
		at = l.Region.open(d, dp.greet.same)
	}
	if at.err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, at.err)
	}
	return nil
}

// holdDevice keeps the region of a segment of device memory open.
func (dp *dataPath) holdDevice(f *flight, s *fabric.Seg) (*hold, error) {
	for i := range f.held {
		if h := &f.held[i]; h.mr.Desc() == s.MR {
			return h, inside(h.mr, s)
		}
	}
	mr := dp.domain.table.Device(s.MR)
	if mr == nil {
		return nil, local.OpFault(fabric.ErrNoMR, "descriptor %d of a local segment of %d bytes", s.MR, s.Len)
	}
	f.held = append(f.held, hold{mr: mr})
	return &f.held[len(f.held)-1], inside(mr, s)
}

// inside refuses a segment that its region does not have.
func inside(mr *regions.MR, s *fabric.Seg) error {
	b := mr.Buffer()
	if s.Addr < b.Addr || s.Addr-b.Addr > b.Len || s.Len > b.Len-(s.Addr-b.Addr) {
		return local.OpFault(fabric.ErrRange, "local segment of %d bytes at %#x, in region %d of %d at %#x", s.Len, s.Addr, mr.Key().ID, b.Len, b.Addr)
	}
	return nil
}

// holdHost keeps the region of a segment of host memory open, and its pin.
func (dp *dataPath) holdHost(f *flight, s *fabric.Seg, wait bool) (*hold, error) {
	for i := range f.held {
		if h := &f.held[i]; h.pin != nil && inside(h.mr, s) == nil {
			return h, nil
		}
	}
	mr := dp.domain.table.Host(s.Addr, s.Len)
	if mr == nil {
		return nil, fmt.Errorf("a local segment of %d bytes at %#x is of no registered region", s.Len, s.Addr)
	}
	p, err := dp.pinned(mr, f.lane.copier.Device(), wait)
	if err != nil {
		mr.Release()
		return nil, err
	}
	f.held = append(f.held, hold{mr: mr, pin: p, shift: p.pinned.shift})
	return &f.held[len(f.held)-1], nil
}

// pinned is the pin of a region of host memory, which the caller is inside of.
func (dp *dataPath) pinned(mr *regions.MR, d *device.Device, wait bool) (*hostPin, error) {
	p := dp.domain.pinOf(mr, d, wait)
	switch {
	case p == nil && !wait:
		return nil, errNotYet
	case p == nil:
		return nil, fmt.Errorf("region %d is being closed", mr.Key().ID)
	case p.err != nil:
		p.use.Leave()
		return nil, p.err
	case p.vendor != d.Vendor:
		p.use.Leave()
		return nil, fmt.Errorf("region %d is pinned for %v and not for %v", mr.Key().ID, p.vendor, d.Vendor)
	}
	return p, nil
}

// list writes down what is copied between the op's local segments and the peer's region, which the
// device sees at base. Lists have thousands of segments, as a rule of one region and of the same
// lengths on both sides.
func (dp *dataPath) list(f *flight, base uint64, wait bool) error {
	op := f.op
	f.bytes, f.blocks = 0, device.CopyBlocks{}
	f.segs = slices.Grow(f.segs[:0], 1+max(len(op.More), len(op.RMore)))
	if done, err := dp.listPairs(f, base, wait); done || err != nil {
		return err
	}
	f.bytes, f.segs = 0, f.segs[:0]
	var in span
	r, rest, off := &op.RSeg, op.RMore, uint64(0) // where in the remote list
	for i := range 1 + len(op.More) {
		s := op.LocalSeg(i)
		if s.Len == 0 {
			continue
		}
		if !in.has(s) {
			var err error
			if in, err = dp.spanOf(f, s, wait); err != nil {
				return err
			}
		}
		for done := uint64(0); done < s.Len; {
			if n := min(s.Len-done, r.Len-off); n > 0 {
				f.add(op.Kind, s.Addr+in.shift+done, base+r.Addr+off, n)
				done, off = done+n, off+n
			}
			if off == r.Len && len(rest) > 0 {
				r, rest, off = &rest[0], rest[1:], 0
			}
		}
	}
	return nil
}

// listBlocks is list for an op of blocks, which the device takes as they are.
func (dp *dataPath) listBlocks(f *flight, base uint64, wait bool) error {
	op := f.op
	in, err := dp.spanOf(f, &op.Seg, wait) // which all blocks lie in, as Submit saw to
	if err != nil {
		return err
	}
	b := op.Blocks
	f.segs, f.bytes = f.segs[:0], b.Bytes()
	local, remote := op.Seg.Addr+in.shift, base+op.RSeg.Addr
	f.blocks = device.CopyBlocks{Dst: remote, Src: local, Bytes: b.Size(), DstOffsets: b.Remote(), SrcOffsets: b.Local()}
	if op.Kind == fabric.OpRead {
		f.blocks.Dst, f.blocks.Src, f.blocks.DstOffsets, f.blocks.SrcOffsets = local, remote, b.Local(), b.Remote()
	}
	return nil
}

// listPairs is list for segments that are as long as their counterparts; false where one is not.
func (dp *dataPath) listPairs(f *flight, base uint64, wait bool) (bool, error) {
	op := f.op
	if len(op.More) != len(op.RMore) || op.Seg.Len != op.RSeg.Len || op.Seg.Len == 0 {
		return false, nil
	}
	in, err := dp.spanOf(f, &op.Seg, wait)
	if err != nil {
		return false, err
	}
	f.add(op.Kind, op.Seg.Addr+in.shift, base+op.RSeg.Addr, op.Seg.Len)
	segs, total, reads := f.segs, f.bytes, op.Kind == fabric.OpRead
	last, more := &segs[0], op.More[:len(op.RMore)]
	for i := range op.RMore {
		s, r := &more[i], &op.RMore[i]
		n := s.Len
		if n != r.Len || n == 0 {
			return false, nil
		}
		if !in.has(s) {
			if in, err = dp.spanOf(f, s, wait); err != nil {
				return false, err
			}
		}
		to, from := base+r.Addr, s.Addr+in.shift
		if reads {
			to, from = from, to
		}
		total += n
		if last.Dst+last.Bytes == to && last.Src+last.Bytes == from {
			last.Bytes += n
			continue
		}
		segs = append(segs, device.CopySegment{Dst: to, Src: from, Bytes: n}) // in place: there is room for all
		last = &segs[len(segs)-1]
	}
	f.segs, f.bytes = segs, total
	return true, nil
}

// A span is a local region, with what is added to its addresses for the device, which reaches it.
type span struct {
	desc      fabric.MRDesc
	addr, len uint64
	shift     uint64
}

func (in *span) has(s *fabric.Seg) bool {
	return s.MR == in.desc && s.Addr >= in.addr && s.Addr-in.addr <= in.len && s.Len <= in.len-(s.Addr-in.addr)
}

// spanOf finds the region of a local segment, keeps it open, and lets the device at it.
func (dp *dataPath) spanOf(f *flight, s *fabric.Seg, wait bool) (span, error) {
	var h *hold
	var err error
	if s.MR == 0 {
		h, err = dp.holdHost(f, s, wait)
	} else if h, err = dp.holdDevice(f, s); err == nil && !h.reached {
		var d *device.Device
		if d, err = deviceOf(h.mr.Buffer()); err == nil {
			err = f.lane.copier.Device().EnablePeer(d)
		}
		h.reached = err == nil
	}
	if err != nil {
		return span{}, err
	}
	b := h.mr.Buffer()
	return span{desc: s.MR, addr: b.Addr, len: b.Len, shift: h.shift}, nil
}

// add appends a copy, as part of the one before where it goes on there.
func (f *flight) add(kind fabric.OpKind, local, remote, n uint64) {
	f.bytes += n
	to, from := remote, local
	if kind == fabric.OpRead {
		to, from = local, remote
	}
	if k := len(f.segs); k > 0 {
		if last := &f.segs[k-1]; last.Dst+last.Bytes == to && last.Src+last.Bytes == from {
			last.Bytes += n
			return
		}
	}
	f.segs = append(f.segs, device.CopySegment{Dst: to, Src: from, Bytes: n})
}

// takeOff begins the copy of a flight that was prepared.
func (dp *dataPath) takeOff(f *flight) {
	dp.noteRegions(f)
	if err := dp.domain.engine.start(f); err != nil {
		dp.landed(f, err)
	}
}

// noteRegions records for holds which local regions f keeps open from now on.
func (dp *dataPath) noteRegions(f *flight) {
	dp.pending.Lock()
	defer dp.pending.Unlock()
	f.regions = f.regions[:0]
	for i := range f.held {
		f.regions = append(f.regions, f.held[i].mr.Key().ID)
	}
}

// copyFault is the end of an op whose copy failed.
func (dp *dataPath) copyFault(f *flight, err error) error {
	pieces := max(len(f.segs), len(f.blocks.DstOffsets))
	return local.OpFault(deviceErrno(err), "%d bytes in %d pieces with %s: %v", f.bytes, pieces, dp.ep.Peer(), err)
}

// deviceErrno is the cause of a driver's error.
func deviceErrno(err error) fabric.Errno {
	var errno fabric.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, device.ErrNoMemory):
		return fabric.Errno(syscall.ENOMEM)
	case errors.Is(err, device.ErrNoPeer), errors.Is(err, device.ErrImage), errors.Is(err, errors.ErrUnsupported):
		return fabric.ErrNotSupported
	case errors.Is(err, device.ErrInvalid):
		return fabric.ErrInvalid
	case errors.Is(err, device.ErrLost):
		return fabric.Errno(syscall.EIO)
	case errors.Is(err, device.ErrTimeout):
		return fabric.ErrTimeout
	}
	return fabric.ErrOther
}
