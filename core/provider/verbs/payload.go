// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"slices"
	"syscall"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

// A payload is an op's bytes as runs, and what it holds until they have moved: the grant of the
// remote region, and the registrations of local memory.
type payload struct {
	path  *dataPath
	op    *fabric.Op
	grant *grant.Grant[regionRef]
	runs  []run
	held  []hold // under the lock of ops.pending, which holds reads it with

	// For an op with unregistered local memory.
	inline  []byte // the inline bytes
	spare   spare  // the bytes are copied to or from it
	leasing bool   // memory is registered for this op alone
	leases  int
}

// A hold is a local region that is kept open, or memory that is registered for the op alone.
type hold struct {
	mr  *regions.MR // nil: memory of the op alone
	reg *registration
}

// prepare enters the grant and lists the runs.
func (x *payload) prepare(l *grant.Grant[regionRef], wait bool) error {
	if err := pathbase.Enter(l); err != nil {
		return err
	}
	x.grant = l
	err := x.list(wait)
	if err == errUnregistered {
		return x.listElsewhere(wait)
	}
	return err
}

// drop undoes prepare.
func (x *payload) drop() {
	x.runs = x.runs[:0]
	x.release()
}

// release releases all that the payload holds.
func (x *payload) release() {
	if x.grant != nil {
		x.grant.Use.Leave()
		x.grant = nil
	}
	for i := range x.held {
		h := &x.held[i]
		if h.mr == nil {
			logged(x.path.log, "deregister an op's memory from its device", h.reg.Close())
			continue
		}
		h.reg.use.Leave()
		h.mr.Release()
	}
	if x.spare.of != nil {
		x.spare.put()
		x.spare = spare{}
	}
	if len(x.held) == 0 {
		return
	}
	x.path.ops.pending.Lock()
	defer x.path.ops.pending.Unlock()
	clear(x.held)
	x.held = x.held[:0]
}

// reset prepares a released payload for another op.
func (x *payload) reset() {
	clear(x.runs)
	x.op, x.runs, x.leasing, x.leases = nil, x.runs[:0], false, 0
}

// holds reports whether the payload keeps a local region open.
func (x *payload) holds(region uint64) bool {
	return slices.ContainsFunc(x.held, func(h hold) bool { return h.mr != nil && h.mr.Key().ID == region })
}

// room returns the address of a buffer for n inline bytes.
func (x *payload) room(n uint64) uint64 {
	if uint64(len(x.inline)) < n {
		x.inline = make([]byte, n)
	}
	return sys.AddrOf(x.inline)
}

// find returns the registration that has n bytes at an address. The payload holds it.
func (x *payload) find(at, n uint64, wait bool) (*registration, error) {
	for i := range x.held {
		if g := x.held[i].reg; g.has(at, n) {
			return g, x.usable(g)
		}
	}
	mr := x.path.domain.table.Host(at, n)
	if mr == nil {
		if x.leasing {
			return x.lease(at, n)
		}
		return nil, errUnregistered
	}
	return x.hold(mr, wait)
}

// hold keeps a region and its registration for the payload. It takes ownership of mr.
func (x *payload) hold(mr *regions.MR, wait bool) (*registration, error) {
	g := x.path.domain.registrationOf(mr, wait)
	if g == nil {
		mr.Release()
		if !wait {
			return nil, pathbase.ErrNotYet
		}
		return nil, fmt.Errorf("%w: region %d is being closed", errStream, mr.Key().ID)
	}
	x.keep(hold{mr, g})
	return g, x.usable(g)
}

// holdDevice holds the regions of the op's segments of device memory.
func (x *payload) holdDevice(wait bool) error {
	var last fabric.MRDesc
	for i := range 1 + len(x.op.More) {
		s := x.op.LocalSeg(i)
		if s.MR == 0 || s.MR == last {
			continue
		}
		last = s.MR
		mr, err := pathbase.DeviceRegion(x.path.domain.table, s)
		if err != nil {
			return err
		}
		if _, err := x.hold(mr, wait); err != nil {
			return err
		}
	}
	return nil
}

// lease registers n bytes for the op alone.
func (x *payload) lease(at, n uint64) (*registration, error) {
	if x.leases++; x.leases > maxTransient {
		return nil, fmt.Errorf("%w: more than %d pieces are not in a registered region", errStream, maxTransient)
	}
	g := registerAll(x.path.all, fabric.Buffer{Addr: at, Len: n}, 0)
	if g.err != nil {
		return nil, fmt.Errorf("%w: %w", errStream, g.err)
	}
	x.keep(hold{reg: g})
	return g, x.usable(g)
}

func (x *payload) keep(h hold) {
	x.path.ops.pending.Lock()
	defer x.path.ops.pending.Unlock()
	x.held = append(x.held, h)
}

// usable returns an error if the op cannot use a registration that it holds.
func (x *payload) usable(g *registration) error {
	switch {
	case g.err != nil:
		return fmt.Errorf("%w: %w", errStream, g.err)
	case !x.path.rails.know(g):
		return fmt.Errorf("%w: a device of %s was removed", errStream, x.path.rails.all[0])
	case g.readOnly && x.op.Kind == fabric.OpRead:
		return local.OpFault(fabric.Errno(syscall.EFAULT), "read into %d bytes of local memory at %#x, which is read-only", g.size, g.base)
	}
	return nil
}
