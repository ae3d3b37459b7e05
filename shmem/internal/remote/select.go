// SPDX-License-Identifier: MIT

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"mori/core"
	"mori/core/config"
	"mori/core/fabric"
	"mori/shmem/internal/peers"
)

// A selection lists the transports that all PEs have, best first.
type selection struct {
	registry *fabric.Registry
	infos    map[string]*fabric.Info
	all      []string
	why      []string // why better ones are not used
}

// offers are the transports of a PE, best first, including those that it cannot use.
type offers []transport

// A transport may be used if Why is empty.
type transport struct{ Name, Why string }

// lacks is why a transport may not be used, "" if it may.
func (s offers) lacks(name string) string {
	if i := slices.IndexFunc(s, func(t transport) bool { return t.Name == name }); i >= 0 {
		return s[i].Why
	}
	return "FABRIC_PROVIDER excludes it there, or its build lacks it"
}

// agree makes the PEs agree on transports. If one PE has no NIC, all PEs use another transport.
// Collective.
func agree(ctx context.Context, pes *peers.Group, cfg Config) (*selection, error) {
	m := &selection{infos: map[string]*fabric.Info{}}
	var mine offers
	err := pes.AllWell(ctx, m.ask(ctx, pes, &cfg, &mine))
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := pes.Gather(ctx, text)
	if err != nil {
		return nil, err
	}
	all := make([]offers, len(blobs))
	for pe, blob := range blobs {
		if err := peers.Decode(blob, pe, "transports", &all[pe]); err != nil {
			return nil, err
		}
	}
	m.all, m.why = common(all, pes.Me)
	if len(m.all) == 0 {
		return nil, fmt.Errorf("no provider fits: %v: %w", m.why, fabric.ErrNoData)
	}
	return m, nil
}

// ask queries this PE's providers.
func (m *selection) ask(ctx context.Context, pes *peers.Group, cfg *Config, mine *offers) error {
	tls, err := core.TLS(config.Get(config.TLSCert), config.Get(config.TLSKey), config.Get(config.TLSCA))
	if err != nil {
		return err
	}
	m.registry, err = core.Registry(core.Options{Filter: config.Get(config.FabricProvider), TLS: tls, Sums: config.Flag(config.IOChecksum, false),
		Compress: config.Flag(config.IOCompress, false), NICs: cfg.nicUse, Log: pes.Log})
	if err != nil {
		return err
	}
	var refusals []error
	for _, name := range m.registry.Names() {
		why := core.Unfit(name, !cfg.Apart)
		if why == "" && core.Pins(name) {
			why = cfg.TooMuchToPin()
		}
		if why == "" {
			infos, err := m.registry.GetInfo(ctx, "", "", Hints(name, cfg.GPU != nil))
			if err == nil {
				m.infos[name] = infos[0].Clone()
			} else {
				why, refusals = err.Error(), append(refusals, err)
			}
		}
		*mine = append(*mine, transport{name, why})
	}
	if len(m.infos) == 0 && cfg.GPU != nil && ctx.Err() == nil {
		return fmt.Errorf("the GPU does not reach %s, and no transport here supports GPU memory: %w: %w", cfg.Unlinked, errors.Join(refusals...), errors.ErrUnsupported)
	}
	return ctx.Err()
}

// nicUse returns how to use NICs: those near the GPU if the heap is on one, with queues for all
// pending ops.
func (c *Config) nicUse() core.NICUse {
	u := core.AnyNIC()
	u.QPs, u.SendWR = c.QPPerPE, maxPending
	if c.GPU != nil {
		u.GPU = c.GPU.Device.BusID
	}
	return u
}

// Hints returns the requirements on a transport, for heaps in host memory or on GPUs.
func Hints(provider string, onGPU bool) *fabric.Info {
	h := &fabric.Info{Provider: provider, EPType: fabric.EPRDM, Caps: fabric.CapRMA | fabric.CapAtomic}
	if onGPU {
		h.Caps |= fabric.CapHMEM
		h.MRMode |= fabric.MRHMEM
	}
	return h
}

// common returns the transports that all PEs have, in the order of PE 0, and why, as seen by PE me,
// better ones are not used.
func common(offered []offers, me int) (all, why []string) {
	missing := func(name string) (pes []int) {
		for pe, s := range offered {
			if s.lacks(name) != "" {
				pes = append(pes, pe)
			}
		}
		return pes
	}
	for _, t := range offered[0] {
		if len(missing(t.Name)) == 0 {
			all = append(all, t.Name)
		}
	}
	var named []string
	for _, s := range offered {
		for _, t := range s {
			if len(all) > 0 && t.Name == all[0] {
				break
			}
			pes := missing(t.Name)
			if slices.Contains(named, t.Name) || len(pes) == 0 {
				continue
			}
			named = append(named, t.Name)
			at, where := pes[0], ""
			if slices.Contains(pes, me) {
				at = me
			}
			if len(pes) < len(offered) {
				where = fmt.Sprintf(" (not on %s)", peers.NameAll(pes))
			}
			why = append(why, fmt.Sprintf("%s: %s%s", t.Name, offered[at].lacks(t.Name), where))
		}
	}
	return all, why
}
