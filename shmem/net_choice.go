// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"mori/core"
	"mori/core/config"
	"mori/core/fabric"
	"mori/shmem/internal/peers"
)

// A menu is the transports that all PEs have, best first.
type menu struct {
	registry *fabric.Registry
	infos    map[string]*fabric.Info
	all      []string
	why      []string // those that come before the first of all were not taken
}

// A stock is the transports of a PE, best first, with those that it cannot use.
type stock []transport

// A transport may be used if Why is empty.
type transport struct{ Name, Why string }

// lacks is why a transport may not be used, "" if it may.
func (s stock) lacks(name string) string {
	if i := slices.IndexFunc(s, func(t transport) bool { return t.Name == name }); i >= 0 {
		return s[i].Why
	}
	return "it is left out there (FABRIC_PROVIDER), or not in its build"
}

// chooseTransports has the PEs agree on transports: one without a NIC does not break the others, which all use another one then. far: there are
// PEs on different nodes. Collective.
func (w *World) chooseTransports(ctx context.Context, far bool) (*menu, error) {
	m := &menu{infos: map[string]*fabric.Info{}}
	var mine stock
	err := w.pes.AllWell(ctx, m.look(ctx, w, far, &mine))
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.pes.Gather(ctx, text)
	if err != nil {
		return nil, err
	}
	stocks := make([]stock, len(blobs))
	for pe, blob := range blobs {
		if err := json.Unmarshal(blob, &stocks[pe]); err != nil {
			return nil, fmt.Errorf("read the transports of PE %d: %w", pe, err)
		}
	}
	m.all, m.why = common(stocks, w.pes.Me)
	if len(m.all) == 0 {
		return nil, fmt.Errorf("no provider fits: %v: %w", m.why, fabric.ErrNoData)
	}
	return m, nil
}

// look asks the providers that this PE has.
func (m *menu) look(ctx context.Context, w *World, far bool, mine *stock) error {
	tls, err := core.TLS(config.Get(config.TLSCert), config.Get(config.TLSKey), config.Get(config.TLSCA))
	if err != nil {
		return err
	}
	m.registry, err = core.Registry(core.Options{Filter: config.Get(config.FabricProvider), TLS: tls, Sums: config.Flag(config.IOChecksum, false),
		Compress: config.Flag(config.IOCompress, false), NICs: w.nicUse, Log: w.pes.Log})
	if err != nil {
		return err
	}
	var refusals []error
	for _, name := range m.registry.Names() {
		why := core.Unfit(name, !far)
		if why == "" && core.Pins(name) {
			why = w.tooMuchToPin()
		}
		if why == "" {
			infos, err := m.registry.GetInfo(ctx, "", "", w.hints(name))
			if err == nil {
				m.infos[name] = infos[0].Clone()
			} else {
				why, refusals = err.Error(), append(refusals, err)
			}
		}
		*mine = append(*mine, transport{name, why})
	}
	if len(m.infos) == 0 && w.gpu != nil && ctx.Err() == nil {
		return fmt.Errorf("the GPU does not reach %s, and no transport here takes memory of GPUs: %w: %w", w.unlinked(), errors.Join(refusals...), errors.ErrUnsupported)
	}
	return ctx.Err()
}

// nicUse is how NICs are used: those near the GPU if the heap is on one, with queues for all that can be under way.
func (w *World) nicUse() core.NICUse {
	u := core.AnyNIC()
	u.QPs, u.SendWR = w.cfg.QPPerPE, flights
	if w.gpu != nil {
		u.GPU = w.gpu.Device.BusID
	}
	return u
}

// hints are what a transport must have.
func (w *World) hints(provider string) *fabric.Info {
	h := &fabric.Info{Provider: provider, EPType: fabric.EPRDM, Caps: fabric.CapRMA | fabric.CapAtomic}
	if w.gpu != nil {
		h.Caps |= fabric.CapHMEM
		h.MRMode |= fabric.MRHMEM
	}
	return h
}

// tooMuchToPin says why NICs are not shown the heap: all of it would be taken at once, and that is more than there is.
func (w *World) tooMuchToPin() string {
	if w.cfg.Mode != StaticHeap || w.gpu != nil {
		return ""
	}
	near, limit, who := w.crowd()
	if now := memAvailable(os.DirFS("/")); limit == 0 && now > 0 && near > now/w.cfg.HeapSize {
		limit, who = now, "what the machine has available"
	}
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("it would pin %d heaps of %d bytes on this node, and %s is %d: set MORI_SHMEM_HEAP_SIZE lower, or MORI_SHMEM_MODE=vmm_heap, where only what is used is pinned",
		near, w.cfg.HeapSize, who, limit)
}

// common is what all PEs have, in the order of PE 0, and why, as PE me sees it, what comes before that is not used.
func common(stocks []stock, me int) (all, why []string) {
	missing := func(name string) (pes []int) {
		for pe, s := range stocks {
			if s.lacks(name) != "" {
				pes = append(pes, pe)
			}
		}
		return pes
	}
	for _, t := range stocks[0] {
		if len(missing(t.Name)) == 0 {
			all = append(all, t.Name)
		}
	}
	var told []string
	for _, s := range stocks {
		for _, t := range s {
			if len(all) > 0 && t.Name == all[0] {
				break
			}
			pes := missing(t.Name)
			if slices.Contains(told, t.Name) || len(pes) == 0 {
				continue
			}
			told = append(told, t.Name)
			at, where := pes[0], ""
			if slices.Contains(pes, me) {
				at = me
			}
			if len(pes) < len(stocks) {
				where = fmt.Sprintf(" (not on %s)", peers.NameAll(pes))
			}
			why = append(why, fmt.Sprintf("%s: %s%s", t.Name, stocks[at].lacks(t.Name), where))
		}
	}
	return all, why
}
