// SPDX-License-Identifier: MIT

package p2p

import (
	"slices"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/pathbase"
)

// A copyList is what a device copies in one launch.
type copyList struct {
	segs   []device.CopySegment
	blocks device.CopyBlocks // in place of segs, if it has some
	bytes  uint64
}

// clear empties the list and makes room for n segments.
func (c *copyList) clear(n int) {
	c.bytes, c.blocks, c.segs = 0, device.CopyBlocks{}, slices.Grow(c.segs[:0], n)
}

// add appends a segment, or extends the last one if they are adjacent.
func (c *copyList) add(kind fabric.OpKind, local, remote, n uint64) {
	c.bytes += n
	to, from := remote, local
	if kind == fabric.OpRead {
		to, from = local, remote
	}
	if k := len(c.segs); k > 0 {
		if last := &c.segs[k-1]; last.Dst+last.Bytes == to && last.Src+last.Bytes == from {
			last.Bytes += n
			return
		}
	}
	c.segs = append(c.segs, device.CopySegment{Dst: to, Src: from, Bytes: n})
}

// list builds the list of copies between the local segments of op and the peer's region, which the
// device sees at base. Lists have thousands of segments, most of them in one region and with equal
// lengths on both sides.
func (x *payload) list(op *fabric.Op, base uint64, wait bool) error {
	n := 1 + max(len(op.More), len(op.RMore))
	x.clear(n)
	if done, err := x.listPairs(op, base, wait); done || err != nil {
		return err
	}
	x.clear(n)
	var in span
	r, rest, off := &op.RSeg, op.RMore, uint64(0) // position in the remote list
	for i := range 1 + len(op.More) {
		s := op.LocalSeg(i)
		if s.Len == 0 {
			continue
		}
		if !in.has(s) {
			var err error
			if in, err = x.spanOf(s, wait); err != nil {
				return err
			}
		}
		for done := uint64(0); done < s.Len; {
			if n := min(s.Len-done, r.Len-off); n > 0 {
				x.add(op.Kind, s.Addr+in.shift+done, base+r.Addr+off, n)
				done, off = done+n, off+n
			}
			if off == r.Len && len(rest) > 0 {
				r, rest, off = &rest[0], rest[1:], 0
			}
		}
	}
	return nil
}

// listPairs is list for segments whose counterparts have the same length. It returns false if one
// has not.
func (x *payload) listPairs(op *fabric.Op, base uint64, wait bool) (bool, error) {
	if len(op.More) != len(op.RMore) || op.Seg.Len != op.RSeg.Len || op.Seg.Len == 0 {
		return false, nil
	}
	in, err := x.spanOf(&op.Seg, wait)
	if err != nil {
		return false, err
	}
	x.add(op.Kind, op.Seg.Addr+in.shift, base+op.RSeg.Addr, op.Seg.Len)
	segs, total, reads := x.segs, x.bytes, op.Kind == fabric.OpRead
	last, more := &segs[0], op.More[:len(op.RMore)]
	for i := range op.RMore {
		s, r := &more[i], &op.RMore[i]
		n := s.Len
		if n != r.Len || n == 0 {
			return false, nil
		}
		if !in.has(s) {
			if in, err = x.spanOf(s, wait); err != nil {
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
	x.segs, x.bytes = segs, total
	return true, nil
}

// listBlocks is list for an op of blocks, which the device accepts directly.
func (x *payload) listBlocks(op *fabric.Op, base uint64, wait bool) error {
	in, err := x.spanOf(&op.Seg, wait) // Submit has checked that it has all blocks
	if err != nil {
		return err
	}
	b := op.Blocks
	x.segs, x.bytes = x.segs[:0], b.Bytes()
	local, remote := op.Seg.Addr+in.shift, base+op.RSeg.Addr
	x.blocks = device.CopyBlocks{Dst: remote, Src: local, Bytes: b.Size(), DstOffsets: b.Remote(), SrcOffsets: b.Local()}
	if op.Kind == fabric.OpRead {
		x.blocks.Dst, x.blocks.Src, x.blocks.DstOffsets, x.blocks.SrcOffsets = local, remote, b.Local(), b.Remote()
	}
	return nil
}

// A span is a local region that the device can access, and the offset from its host addresses to
// the device's.
type span struct {
	desc      fabric.MRDesc
	addr, len uint64
	shift     uint64
}

func (in *span) has(s *fabric.Seg) bool {
	return s.MR == in.desc && s.Addr >= in.addr && s.Addr-in.addr <= in.len && s.Len <= in.len-(s.Addr-in.addr)
}

// spanOf finds the region of a local segment, keeps it open, and gives the device access.
func (x *payload) spanOf(s *fabric.Seg, wait bool) (span, error) {
	var h *hold
	var err error
	if s.MR == 0 {
		h, err = x.holdHost(s, wait)
	} else if h, err = x.holdDevice(s); err == nil && !h.reached {
		var d *device.Device
		if d, err = pathbase.DeviceOf(h.mr.Buffer()); err == nil {
			err = x.lane.copier.Device().EnablePeer(d)
		}
		h.reached = err == nil
	}
	if err != nil {
		return span{}, err
	}
	b := h.mr.Buffer()
	return span{desc: s.MR, addr: b.Addr, len: b.Len, shift: h.shift}, nil
}
