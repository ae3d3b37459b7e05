// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"syscall"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/local"
	"mori/native/verbs"
)

// A registration is a region that is registered with all devices.
type registration struct {
	base, size uint64
	chunk      uint64
	keys       [][]verbs.Keys // by device, by piece
	readOnly   bool           // no op can read into it
	gpu        *gpuMemory     // nil: host memory
	err        error          // why it has no keys

	mrs []verbs.MR
	use local.Gate // ops whose work requests use its local keys
}

// Use returns the gate of the ops; see pathbase.Registration.
func (g *registration) Use() *local.Gate { return &g.use }

// registrationOf enters the gate of a region's registration. The caller keeps the region open. With
// wait, it registers the region if necessary; otherwise it may return nil. The registration has
// keys if its err is nil.
func (d *domain) registrationOf(mr *regions.MR, wait bool) *registration {
	if !wait {
		return d.regions.Find(mr, nil)
	}
	return d.regions.Find(mr, func() *registration {
		g := register(d.all, mr)
		if g.err != nil {
			d.all.opts.Log.Warn("verbs: a region uses TCP, which is slower, because no device can register it", "bytes", g.size, "error", g.err)
		}
		return g
	})
}

// register registers a region with all devices.
func register(all *domains, mr *regions.MR) *registration {
	var rights verbs.Access
	if mr.Access()&fabric.AccessRemoteRead != 0 {
		rights |= verbs.AccessRemoteRead
	}
	if mr.Access()&fabric.AccessRemoteWrite != 0 {
		rights |= verbs.AccessRemoteWrite
	}
	if all.settings.Relaxed {
		rights |= verbs.AccessRelaxedOrdering
	}
	return registerAll(all, mr.Buffer(), rights)
}

// registerAll registers memory with all devices.
func registerAll(all *domains, buf fabric.Buffer, rights verbs.Access) *registration {
	g := &registration{base: buf.Addr, size: buf.Len, chunk: buf.Len}
	if g.gpu, g.err = gpuOf(buf, all.settings.DMABuf); g.err != nil {
		return g
	}
	for _, c := range all.nics {
		g.chunk = min(g.chunk, pieceOf(c.attr.MaxMRSize))
	}
	g.chunk = max(g.chunk, 1)
	if most := maxKeys(len(all.nics)); pieces(g.size, g.chunk) > most {
		g.err = fmt.Errorf("%d bytes are more than %d registrations of %d: %w", g.size, most, g.chunk, fabric.ErrNotSupported)
		return g
	}
	for _, c := range all.nics {
		if c.dead.Load() { // no connection uses it any more
			g.keys = append(g.keys, nil)
			continue
		}
		if g.err = g.show(c, rights); g.err != nil {
			g.err = errors.Join(g.explain(g.err, c), g.Close())
			return g
		}
	}
	g.gpu.logChoice(all.opts.Log, g.size)
	return g
}

// has reports whether the registration has n bytes at an address.
func (g *registration) has(at, n uint64) bool {
	return at >= g.base && at-g.base <= g.size && n <= g.size-(at-g.base)
}

// piece returns the number of the piece that contains an address.
func (g *registration) piece(at uint64) uint64 { return (at - g.base) / g.chunk }

// pieceOf returns the largest power of two that a device registers at once.
func pieceOf(most uint64) uint64 {
	if most == 0 {
		return 1 << 62
	}
	return 1 << (bits.Len64(most) - 1)
}

// maxKeys returns the most pieces whose keys fit into a frame.
func maxKeys(rails int) uint64 { return uint64((maxRegionRef - regionRefLen) / 4 / max(1, rails)) }

// maxRegionRef bounds a regionRef, so that it fits into an extension frame with its ticket.
const maxRegionRef = 4000

// show registers all pieces with one device.
func (g *registration) show(n *nic, rights verbs.Access) error {
	var keys []verbs.Keys
	for off := uint64(0); off < g.size || off == 0; off += g.chunk {
		length := min(g.chunk, g.size-off)
		pin := g.pin
		if g.gpu != nil {
			pin = g.gpu.pin
		}
		h, k, err := pin(n, g.base+off, length, rights)
		if err != nil {
			return err
		}
		g.mrs, keys = append(g.mrs, h), append(keys, k)
	}
	g.keys = append(g.keys, keys)
	return nil
}

// pin registers host memory with one device, read-only if it may not be written.
func (g *registration) pin(n *nic, at, length uint64, rights verbs.Access) (verbs.MR, verbs.Keys, error) {
	write := verbs.AccessLocalWrite
	if g.readOnly {
		write = 0
	}
	h, k, err := n.pd.RegMR(at, length, at, rights|write)
	if err != nil && write != 0 && rights&verbs.AccessRemoteWrite == 0 && (errors.Is(err, syscall.EFAULT) || errors.Is(err, syscall.EACCES)) {
		g.readOnly = true
		h, k, err = n.pd.RegMR(at, length, at, rights)
	}
	return h, k, err
}

// explain adds a remedy to err.
func (g *registration) explain(err error, n *nic) error {
	size := g.size
	if g.gpu != nil {
		return g.gpu.explain(err, n, size)
	}
	var hint string
	switch {
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN):
		hint = "the locked-memory limit is too low (ulimit -l, LimitMEMLOCK=), or the device is out of regions"
	case errors.Is(err, syscall.EFAULT):
		hint = "the memory is not mapped, or is of a kind that the device cannot access"
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EOPNOTSUPP):
		hint = "the device refuses this memory"
	default:
		return fmt.Errorf("register %d bytes with %s: %w", size, n.name, err)
	}
	return fmt.Errorf("register %d bytes with %s: %s: %w", size, n.name, hint, err)
}

// Close deregisters the region from the devices.
func (g *registration) Close() error {
	var errs []error
	for _, h := range g.mrs {
		errs = append(errs, h.Close())
	}
	g.mrs = nil
	return errors.Join(errs...)
}

// ref returns the description of a region for a peer whose rails are on these devices.
func (g *registration) ref(mr *regions.MR, rails []*rail) regionRef {
	ref := regionRef{base: g.base, size: g.size, access: mr.Access(), chunk: g.chunk}
	for _, r := range rails {
		keys := make([]uint32, len(g.keys[r.nicAt]))
		for i, k := range g.keys[r.nicAt] {
			keys[i] = k.Remote
		}
		ref.keys = append(ref.keys, keys)
	}
	return ref
}

// logged reports errors that have no caller to return to.
func logged(log *slog.Logger, what string, err error) {
	if err != nil {
		log.Warn("verbs: "+what, "error", err)
	}
}
