// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
	"mori/core/provider/internal/staging"
)

// A run is a range of bytes that is contiguous at both ends, within one piece of a registration at
// each.
type run struct {
	local, remote, n uint64
	reg              *registration // nil: inline
}

// list builds the runs of the op.
func (x *payload) list(wait bool) error {
	total := x.op.Len()
	most := x.path.rails.longest(total)
	onDevice := staging.OnDevice(x.op)
	if most := x.path.rails.maxInline; x.op.Kind == fabric.OpWrite && total <= most && !onDevice {
		return x.listCopied(x.room(most), nil)
	}
	if onDevice {
		if err := x.holdDevice(wait); err != nil {
			return err
		}
	}
	ref := &x.grant.Region
	var reg *registration
	for walk := util.NewWalk(x.op); ; {
		at, off, n, ok := walk.Next()
		if !ok {
			return nil
		}
		for n > 0 {
			if reg == nil || !reg.has(at, n) {
				var err error
				if reg, err = x.find(at, n, wait); err != nil {
					return err
				}
			}
			k := min(n, most, ref.chunk-off%ref.chunk, reg.chunk-(at-reg.base)%reg.chunk)
			x.add(run{at, ref.base + off, k, reg}, ref, most)
			at, off, n = at+k, off+k, n-k
		}
	}
}

// add appends a run, or extends the last one if r follows it directly.
func (x *payload) add(r run, ref *regionRef, most uint64) {
	if n := len(x.runs); n > 0 {
		last := &x.runs[n-1]
		if last.local+last.n == r.local && last.remote+last.n == r.remote && last.reg == r.reg && last.n+r.n <= most &&
			(last.remote-ref.base)/ref.chunk == (r.remote-ref.base)/ref.chunk && (r.reg == nil || r.reg.piece(last.local) == r.reg.piece(r.local)) {
			last.n += r.n
			return
		}
	}
	x.runs = append(x.runs, r)
}

// errUnregistered means that some local memory of an op belongs to no region.
var errUnregistered = errors.New("local memory is not in a registered region")

// listElsewhere is list for an op with unregistered local memory. It copies the bytes to or from a
// spare, or registers the memory for the op.
func (x *payload) listElsewhere(wait bool) error {
	x.runs = x.runs[:0]
	if staging.OnDevice(x.op) {
		return fmt.Errorf("%w: host memory beside device memory is not in a registered region", errStream)
	}
	all := x.path.all
	if kind := kindFor(x.op.Len()); kind >= 0 {
		if wait {
			all.spares.open(all, kind)
		}
		if s := all.spares.take(kind); s.of != nil {
			x.spare = s
			return x.listCopied(s.addr(), s.of.reg)
		}
	}
	if !wait {
		return pathbase.ErrNotYet
	}
	select {
	case all.leasing <- struct{}{}:
	case <-x.path.ops.Stopped:
		return fmt.Errorf("%w: the connection has ended", errStream)
	}
	defer func() { <-all.leasing }()
	x.leasing = true
	return x.list(true)
}

// listCopied lists the op with other local memory: at an address within a registration, or inline.
// It copies the bytes of a write there, and fails if they cannot be read.
func (x *payload) listCopied(at uint64, reg *registration) error {
	ref, most := &x.grant.Region, x.path.rails.longest(x.op.Len())
	for walk, pos := util.NewWalk(x.op), uint64(0); ; {
		local, off, n, ok := walk.Next()
		if !ok {
			return nil
		}
		if x.op.Kind == fabric.OpWrite {
			if err := sys.Move(at+pos, local, n); err != nil {
				return unreachable(local, n, err)
			}
		}
		for n > 0 {
			k := min(n, most, ref.chunk-off%ref.chunk)
			if reg != nil {
				k = min(k, reg.chunk-(at+pos-reg.base)%reg.chunk)
			}
			x.add(run{at + pos, ref.base + off, k, reg}, ref, most)
			pos, off, n = pos+k, off+k, n-k
		}
	}
}

// deliver copies the bytes of a read from the spare to the op's local memory.
func (x *payload) deliver() error {
	at := x.spare.addr()
	for walk := util.NewWalk(x.op); ; {
		local, _, n, ok := walk.Next()
		if !ok {
			return nil
		}
		if err := sys.Move(local, at, n); err != nil {
			return unreachable(local, n, err)
		}
		at += n
	}
}

// unreachable returns the error of an op whose local memory is not mapped, or not writable.
func unreachable(at, n uint64, err error) error {
	return local.OpFault(fabric.ErrnoOf(err), "%d bytes of local memory at %#x: %v", n, at, err)
}
