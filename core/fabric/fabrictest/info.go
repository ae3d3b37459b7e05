// SPDX-License-Identifier: MIT

package fabrictest

import (
	"fmt"
	"math"
	"math/bits"

	"mori/core/fabric"
)

var infoCases = []testCase{
	{"requested capabilities are granted", func(r *rig) {
		have := r.offers()[0].Caps &^ fabric.CapsSecondary
		for caps := range fabric.Caps(fabric.CapTagged) { // all sets of messages, RMA and atomics
			if caps&^have != 0 {
				continue
			}
			in, err := r.ask(hints(r.info.EPType, caps))
			if err != nil {
				r.Errorf("caps %v: %v", caps, err)
			} else if got := in.Caps &^ fabric.CapsSecondary; caps != 0 && got != caps || caps == 0 && got == 0 {
				r.Errorf("caps %v were answered with %v", caps, got)
			}
		}
	}},
	{"supported secondary capabilities may be requested", func(r *rig) {
		for _, in := range r.offers() {
			if in.Caps&(fabric.CapLocalComm|fabric.CapRemoteComm) == 0 {
				r.Errorf("reaches neither this host nor others: %v", in.Caps)
			}
			got, err := r.ask(hints(r.info.EPType, fabric.CapMSG|in.Caps&fabric.CapsSecondary))
			if err != nil || got.Caps&in.Caps&fabric.CapsSecondary != in.Caps&fabric.CapsSecondary {
				r.Errorf("%v: %v", in.Caps, err)
			}
		}
	}},
	{"the answer reports the provider's capabilities", whatThereIs},
	{"hints that cannot be met return ErrNoData", badHints},
	{"each endpoint type has its own answer", func(r *rig) {
		all, err := r.provider.GetInfo(r.ctx, "", "", hints(0, 0))
		r.must(err)
		count := map[fabric.EPType]int{}
		for _, in := range all {
			count[in.EPType]++
		}
		for _, e := range epTypes {
			infos, err := r.provider.GetInfo(r.ctx, "", "", hints(e.typ, 0))
			if len(infos) != count[e.typ] {
				r.Errorf("%d answers of type %s, and %d among all", len(infos), e.name, count[e.typ])
			}
			if len(infos) == 0 {
				r.want(e.name, err, fabric.ErrNoData)
			}
			for _, in := range infos {
				if in.EPType != e.typ {
					r.Errorf("type %s was answered with %+v", e.name, in)
				}
			}
		}
	}},
	{"order holds for a pair, up to a size", orderHints},
	{"modes that the caller does not support exclude an answer", func(r *rig) {
		for _, in := range r.offers() {
			h := hints(r.info.EPType, in.Caps)
			for bit := range 32 {
				h.Mode, h.MRMode = in.Mode&^(1<<bit), in.MRMode&^(1<<bit)
				got, err := r.ask(h)
				if err == nil && (got.Mode&^h.Mode != 0 || got.MRMode&^h.MRMode != 0) {
					r.Errorf("modes %#x and %#x were asked for: %+v", h.Mode, h.MRMode, got)
				}
				if (h.Mode != in.Mode || h.MRMode != in.MRMode) && err != nil {
					r.want("fewer duties", err, fabric.ErrNoData)
				}
			}
		}
		if in, err := r.ask(&fabric.Info{EPType: r.info.EPType, Caps: fabric.CapMSG, Mode: allModes}); err == nil && in.MRMode&(fabric.MRVirtAddr|fabric.MRProvKey) != 0 {
			r.Errorf("messages need registration rules for remote memory: %+v", in)
		}
	}},
	{"limits that are met stay the provider's", func(r *rig) {
		h := hints(r.info.EPType, r.info.Caps)
		h.Limits = fabric.Limits{SegLimit: 1, TxSize: 1, MaxMsg: 1, BestOp: 1}
		in, err := r.ask(h)
		r.must(err)
		if in.Limits != r.info.Limits {
			r.Errorf("%+v, without hints %+v", in.Limits, r.info.Limits)
		}
	}},
	{"limits are asked for exactly", exactLimits},
	{"the caller owns the answer", func(r *rig) {
		first := r.offers()[0]
		*first = fabric.Info{}
		if second := r.offers()[0]; second.Provider == "" {
			r.Error("a change of one answer shows in the next")
		}
	}},
}

// ask is the best answer to hints.
func (r *rig) ask(h *fabric.Info) (*fabric.Info, error) {
	infos, err := r.provider.GetInfo(r.ctx, "", "", h)
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("no answer and no error to %+v", h)
	}
	return infos[0], nil
}

// offers are all answers for endpoints of the rig's type.
func (r *rig) offers() []*fabric.Info {
	r.Helper()
	infos, err := r.provider.GetInfo(r.ctx, "", "", hints(r.info.EPType, 0))
	r.must(err)
	if len(infos) == 0 {
		r.Fatal("no answer and no error")
	}
	return infos
}

func whatThereIs(r *rig) {
	version, api := r.provider.Version()
	if api.Major != fabric.APIVersion.Major {
		r.Errorf("written for API %v", api)
	}
	infos, err := r.provider.GetInfo(r.ctx, "", "", nil)
	r.must(err)
	for _, in := range infos {
		if in.Provider != r.provider.Name() || in.ProviderVersion != version || in.FabricName == "" || in.DomainName == "" {
			r.Errorf("unnamed: %+v", in)
		}
		l := in.Limits
		if l.MaxMsg < 64<<20 || l.TxSize < 1 || l.RxSize < 1 || l.SegLimit < 1 || l.RSegLimit < 1 || l.MRKeySize < 1 ||
			l.BestOp > l.MaxMsg || l.CQDataSize > 8 || in.EPType == fabric.EPMsg && l.MaxPrivate < 1 {
			r.Errorf("limits %+v", l)
		}
		if (in.Caps&fabric.CapAtomic != 0) != (l.MaxAtomic >= 8) {
			r.Errorf("capabilities %v, and atomics of %d bytes", in.Caps, l.MaxAtomic)
		}
		if in.Order&^fabric.OrderAll != 0 || in.Order&fabric.OrderSAS == 0 {
			r.Errorf("messages arrive in order, and it says order %#x", in.Order)
		}
		if in.Order&fabric.OrderRAW != 0 && l.OrderRAW == 0 || in.Order&fabric.OrderWAW != 0 && l.OrderWAW == 0 ||
			in.Order&fabric.OrderWAR != 0 && l.OrderWAR == 0 {
			r.Errorf("order %#x is kept up to no size: %+v", in.Order, l)
		}
	}
	if n := len(r.host().reg(r.alloc(8), bothRights).Raw()); n > r.info.Limits.MRKeySize {
		r.Errorf("a key has %d bytes, the limit is %d", n, r.info.Limits.MRKeySize)
	}
}

func badHints(r *rig) {
	for name, change := range map[string]func(*fabric.Info){
		"tagged messages":        func(h *fabric.Info) { h.Caps = fabric.CapMSG | fabric.CapTagged },
		"many into one receive":  func(h *fabric.Info) { h.Caps = fabric.CapMSG | fabric.CapMultiRecv },
		"events of RMA":          func(h *fabric.Info) { h.Caps = fabric.CapRMA | fabric.CapRMAEvent },
		"triggers":               func(h *fabric.Info) { h.Caps = fabric.CapTrigger },
		"receives from one peer": func(h *fabric.Info) { h.Caps = fabric.CapMSG | fabric.CapDirectedRecv },
		"shared contexts":        func(h *fabric.Info) { h.Caps = fabric.CapSharedCtx },
		"scalable endpoints":     func(h *fabric.Info) { h.Caps = fabric.CapScalable },
		"unknown capability":     func(h *fabric.Info) { h.Caps = 1 << 50 },
		"unknown endpoint type":  func(h *fabric.Info) { h.EPType = 77 },
		"unknown order":          func(h *fabric.Info) { h.Order = 1 << 30 },
		"another name":           func(h *fabric.Info) { h.Provider = "no-such-provider" },
		"another device":         func(h *fabric.Info) { h.DomainName = "no-such-device" },
		"another fabric":         func(h *fabric.Info) { h.FabricName = "no-such-fabric" },
	} {
		h := hints(r.info.EPType, 0)
		change(h)
		infos, err := r.provider.GetInfo(r.ctx, "", "", h)
		if len(infos) != 0 {
			r.Errorf("%s: answered %+v", name, infos[0])
		}
		r.want(name, err, fabric.ErrNoData)
	}
}

// orderHints asks for each pair of ops by itself, for all, and for a size beyond each bound.
func orderHints(r *rig) {
	var have fabric.Order
	for _, in := range r.offers() {
		have |= in.Order
	}
	for bit := range bits.Len32(uint32(fabric.OrderAll)) {
		h := hints(r.info.EPType, 0)
		h.Order = 1 << bit
		in, err := r.ask(h)
		switch {
		case h.Order&have == 0:
			r.want(fmt.Sprintf("order %#x", h.Order), err, fabric.ErrNoData)
		case err != nil || in.Order&h.Order == 0:
			r.Errorf("order %#x was answered with %+v, %v", h.Order, in, err)
		}
	}
}

// exactLimits asks for what there is, and for one more.
func exactLimits(r *rig) {
	for name, field := range map[string]func(*fabric.Limits) (*int, *uint64){
		"messages":         func(l *fabric.Limits) (*int, *uint64) { return nil, &l.MaxMsg },
		"inject":           func(l *fabric.Limits) (*int, *uint64) { return nil, &l.MaxInject },
		"private data":     func(l *fabric.Limits) (*int, *uint64) { return &l.MaxPrivate, nil },
		"remote data":      func(l *fabric.Limits) (*int, *uint64) { return &l.CQDataSize, nil },
		"ops in flight":    func(l *fabric.Limits) (*int, *uint64) { return &l.TxSize, nil },
		"posted receives":  func(l *fabric.Limits) (*int, *uint64) { return &l.RxSize, nil },
		"segments":         func(l *fabric.Limits) (*int, *uint64) { return &l.SegLimit, nil },
		"remote segments":  func(l *fabric.Limits) (*int, *uint64) { return &l.RSegLimit, nil },
		"blocks":           func(l *fabric.Limits) (*int, *uint64) { return &l.BlockLimit, nil },
		"keys":             func(l *fabric.Limits) (*int, *uint64) { return &l.MRKeySize, nil },
		"atomics":          func(l *fabric.Limits) (*int, *uint64) { return nil, &l.MaxAtomic },
		"read after write": func(l *fabric.Limits) (*int, *uint64) { return nil, &l.OrderRAW },
		"write after read": func(l *fabric.Limits) (*int, *uint64) { return nil, &l.OrderWAR },
		"writes":           func(l *fabric.Limits) (*int, *uint64) { return nil, &l.OrderWAW },
	} {
		get := func(in *fabric.Info) uint64 {
			n, u := field(&in.Limits)
			if n != nil {
				return uint64(*n)
			}
			return *u
		}
		most := uint64(0)
		for _, in := range r.offers() {
			most = max(most, get(in))
		}
		h := hints(r.info.EPType, 0)
		n, u := field(&h.Limits)
		set := func(v uint64) {
			if n != nil {
				*n = int(v)
			} else {
				*u = v
			}
		}
		if set(most); most > 0 {
			if in, err := r.ask(h); err != nil || get(in) < most {
				r.Errorf("%s of %d: %v", name, most, err)
			}
		}
		if most < math.MaxInt {
			set(most + 1)
			_, err := r.ask(h)
			r.want(fmt.Sprintf("%s of %d, of which there are %d", name, most+1, most), err, fabric.ErrNoData)
		}
	}
}
