// SPDX-License-Identifier: MIT

package setup

import (
	"fmt"
	"math"
	"math/bits"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// InfoCases are the cases of what GetInfo answers.
var InfoCases = []rig.Case{
	{Name: "requested capabilities are granted", Run: func(r *rig.Rig) {
		have := offers(r)[0].Caps &^ fabric.CapsSecondary
		for caps := range fabric.Caps(fabric.CapTagged) { // all sets of messages, RMA and atomics
			if caps&^have != 0 {
				continue
			}
			in, err := ask(r, rig.Hints(r.Info.EPType, caps))
			if err != nil {
				r.Errorf("caps %v: %v", caps, err)
			} else if got := in.Caps &^ fabric.CapsSecondary; caps != 0 && got != caps || caps == 0 && got == 0 {
				r.Errorf("caps %v were answered with %v", caps, got)
			}
		}
	}},
	{Name: "supported secondary capabilities may be requested", Run: func(r *rig.Rig) {
		for _, in := range offers(r) {
			if in.Caps&(fabric.CapLocalComm|fabric.CapRemoteComm) == 0 {
				r.Errorf("reaches neither this host nor others: %v", in.Caps)
			}
			got, err := ask(r, rig.Hints(r.Info.EPType, fabric.CapMSG|in.Caps&fabric.CapsSecondary))
			if err != nil || got.Caps&in.Caps&fabric.CapsSecondary != in.Caps&fabric.CapsSecondary {
				r.Errorf("%v: %v", in.Caps, err)
			}
		}
	}},
	{Name: "the answer reports the provider's capabilities", Run: whatThereIs},
	{Name: "hints that cannot be met return ErrNoData", Run: badHints},
	{Name: "each endpoint type has its own answer", Run: func(r *rig.Rig) {
		all, err := r.Provider.GetInfo(r.Ctx, "", "", rig.Hints(0, 0))
		r.Must(err)
		count := map[fabric.EPType]int{}
		for _, in := range all {
			count[in.EPType]++
		}
		for _, e := range rig.EPTypes {
			infos, err := r.Provider.GetInfo(r.Ctx, "", "", rig.Hints(e.Type, 0))
			if len(infos) != count[e.Type] {
				r.Errorf("%d answers of type %s, and %d among all", len(infos), e.Name, count[e.Type])
			}
			if len(infos) == 0 {
				r.Want(e.Name, err, fabric.ErrNoData)
			}
			for _, in := range infos {
				if in.EPType != e.Type {
					r.Errorf("type %s was answered with %+v", e.Name, in)
				}
			}
		}
	}},
	{Name: "order holds for a pair, up to a size", Run: orderHints},
	{Name: "modes that the caller does not support exclude an answer", Run: func(r *rig.Rig) {
		for _, in := range offers(r) {
			h := rig.Hints(r.Info.EPType, in.Caps)
			for bit := range 32 {
				h.Mode, h.MRMode = in.Mode&^(1<<bit), in.MRMode&^(1<<bit)
				got, err := ask(r, h)
				if err == nil && (got.Mode&^h.Mode != 0 || got.MRMode&^h.MRMode != 0) {
					r.Errorf("modes %#x and %#x were asked for: %+v", h.Mode, h.MRMode, got)
				}
				if (h.Mode != in.Mode || h.MRMode != in.MRMode) && err != nil {
					r.Want("fewer duties", err, fabric.ErrNoData)
				}
			}
		}
		if in, err := ask(r, &fabric.Info{EPType: r.Info.EPType, Caps: fabric.CapMSG, Mode: rig.AllModes}); err == nil && in.MRMode&(fabric.MRVirtAddr|fabric.MRProvKey) != 0 {
			r.Errorf("messages need registration rules for remote memory: %+v", in)
		}
	}},
	{Name: "limits that are met stay the provider's", Run: func(r *rig.Rig) {
		h := rig.Hints(r.Info.EPType, r.Info.Caps)
		h.Limits = fabric.Limits{SegLimit: 1, TxSize: 1, MaxMsg: 1, BestOp: 1}
		in, err := ask(r, h)
		r.Must(err)
		if in.Limits != r.Info.Limits {
			r.Errorf("%+v, without hints %+v", in.Limits, r.Info.Limits)
		}
	}},
	{Name: "limits are asked for exactly", Run: exactLimits},
	{Name: "the caller owns the answer", Run: func(r *rig.Rig) {
		first := offers(r)[0]
		*first = fabric.Info{}
		if second := offers(r)[0]; second.Provider == "" {
			r.Error("a change of one answer shows in the next")
		}
	}},
}

// ask is the best answer to hints.
func ask(r *rig.Rig, h *fabric.Info) (*fabric.Info, error) {
	infos, err := r.Provider.GetInfo(r.Ctx, "", "", h)
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("no answer and no error to %+v", h)
	}
	return infos[0], nil
}

// offers are all answers for endpoints of the rig's type.
func offers(r *rig.Rig) []*fabric.Info {
	r.Helper()
	infos, err := r.Provider.GetInfo(r.Ctx, "", "", rig.Hints(r.Info.EPType, 0))
	r.Must(err)
	if len(infos) == 0 {
		r.Fatal("no answer and no error")
	}
	return infos
}

func whatThereIs(r *rig.Rig) {
	version, api := r.Provider.Version()
	if api.Major != fabric.APIVersion.Major {
		r.Errorf("written for API %v", api)
	}
	infos, err := r.Provider.GetInfo(r.Ctx, "", "", nil)
	r.Must(err)
	for _, in := range infos {
		if in.Provider != r.Provider.Name() || in.ProviderVersion != version || in.FabricName == "" || in.DomainName == "" {
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
	if n := len(r.Host().Reg(r.Alloc(8), rig.BothRights).Raw()); n > r.Info.Limits.MRKeySize {
		r.Errorf("a key has %d bytes, the limit is %d", n, r.Info.Limits.MRKeySize)
	}
}

func badHints(r *rig.Rig) {
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
		h := rig.Hints(r.Info.EPType, 0)
		change(h)
		infos, err := r.Provider.GetInfo(r.Ctx, "", "", h)
		if len(infos) != 0 {
			r.Errorf("%s: answered %+v", name, infos[0])
		}
		r.Want(name, err, fabric.ErrNoData)
	}
}

// orderHints asks for each pair of ops by itself, for all, and for a size beyond each bound.
func orderHints(r *rig.Rig) {
	var have fabric.Order
	for _, in := range offers(r) {
		have |= in.Order
	}
	for bit := range bits.Len32(uint32(fabric.OrderAll)) {
		h := rig.Hints(r.Info.EPType, 0)
		h.Order = 1 << bit
		in, err := ask(r, h)
		switch {
		case h.Order&have == 0:
			r.Want(fmt.Sprintf("order %#x", h.Order), err, fabric.ErrNoData)
		case err != nil || in.Order&h.Order == 0:
			r.Errorf("order %#x was answered with %+v, %v", h.Order, in, err)
		}
	}
}

// exactLimits asks for what there is, and for one more.
func exactLimits(r *rig.Rig) {
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
		for _, in := range offers(r) {
			most = max(most, get(in))
		}
		h := rig.Hints(r.Info.EPType, 0)
		n, u := field(&h.Limits)
		set := func(v uint64) {
			if n != nil {
				*n = int(v)
			} else {
				*u = v
			}
		}
		if set(most); most > 0 {
			if in, err := ask(r, h); err != nil || get(in) < most {
				r.Errorf("%s of %d: %v", name, most, err)
			}
		}
		if most < math.MaxInt {
			set(most + 1)
			_, err := ask(r, h)
			r.Want(fmt.Sprintf("%s of %d, of which there are %d", name, most+1, most), err, fabric.ErrNoData)
		}
	}
}
