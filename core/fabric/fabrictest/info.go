// SPDX-License-Identifier: MIT

package fabrictest

import (
	"mori/core/fabric"
)

var infoCases = []testCase{
	{"what is asked for is granted", func(r *rig) {
		for _, caps := range []fabric.Caps{0, fabric.CapMSG, fabric.CapRMA, fabric.CapMSG | fabric.CapRMA} {
			infos, err := r.provider.GetInfo(r.ctx, "", "", &fabric.Info{Caps: caps})
			if err != nil || len(infos) == 0 {
				r.Errorf("caps %v: %v", caps, err)
				continue
			}
			if got := infos[0].Caps &^ fabric.CapsSecondary; caps != 0 && got != caps {
				r.Errorf("caps %v were answered with %v", caps, got)
			}
		}
	}},
	{"the answer says what there is", func(r *rig) {
		infos, err := r.provider.GetInfo(r.ctx, "", "", nil)
		r.must(err)
		version, api := r.provider.Version()
		for _, in := range infos {
			if in.Provider != r.provider.Name() || in.ProviderVersion != version || in.FabricName == "" || in.DomainName == "" {
				r.Errorf("unnamed: %+v", in)
			}
			l := in.Limits
			if l.MaxMsg < 64<<20 || l.MaxPrivate < 1 || l.TxSize < 1 || l.RxSize < 1 || l.SegLimit < 1 || l.RSegLimit < 1 ||
				l.MRKeySize < 1 || l.BestOp > l.MaxMsg || l.CQDataSize > 8 {
				r.Errorf("limits %+v", l)
			}
		}
		if api.Major != fabric.APIVersion.Major {
			r.Errorf("written for API %v", api)
		}
	}},
	{"hints that cannot be met get no data", func(r *rig) {
		offer := r.info.Limits
		for name, hints := range map[string]*fabric.Info{
			"tagged messages": {Caps: fabric.CapMSG | fabric.CapTagged},
			"triggers":        {Caps: fabric.CapTrigger},
			"unknown bit":     {Caps: 1 << 50},
			"another name":    {Provider: "no-such-provider"},
			"another device":  {DomainName: "no-such-device"},
			"another fabric":  {FabricName: "no-such-fabric"},
			"private data":    {Limits: fabric.Limits{MaxPrivate: offer.MaxPrivate + 1}},
			"segments":        {Limits: fabric.Limits{SegLimit: offer.SegLimit + 1}},
			"ops in flight":   {Limits: fabric.Limits{TxSize: offer.TxSize + 1}},
			"inject":          {Limits: fabric.Limits{MaxInject: offer.MaxInject + 1}},
		} {
			infos, err := r.provider.GetInfo(r.ctx, "", "", hints)
			if len(infos) != 0 {
				r.Errorf("%s: answered %+v", name, infos[0])
			}
			r.want(name, err, fabric.ErrNoData)
		}
	}},
	{"limits that are met stay the provider's", func(r *rig) {
		infos, err := r.provider.GetInfo(r.ctx, "", "", &fabric.Info{Limits: fabric.Limits{MaxPrivate: 1, SegLimit: 1, TxSize: 1}})
		r.must(err)
		if infos[0].Limits != r.info.Limits {
			r.Errorf("%+v, without hints %+v", infos[0].Limits, r.info.Limits)
		}
	}},
	{"the caller owns the answer", func(r *rig) {
		first, err := r.provider.GetInfo(r.ctx, "", "", nil)
		r.must(err)
		*first[0] = fabric.Info{}
		second, err := r.provider.GetInfo(r.ctx, "", "", nil)
		r.must(err)
		if second[0].Provider == "" {
			r.Error("a change of one answer shows in the next")
		}
	}},
	{"it opens and closes in any number", func(r *rig) {
		for range 3 {
			r.host()
		}
	}},
}
