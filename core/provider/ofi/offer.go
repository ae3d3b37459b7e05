// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// What libfabric leaves unbounded is bounded here: lengths add up, and slots are memory.
const (
	maxMsg   = 1 << 40
	maxSlots = 4096
)

// mrModes are the rules that this provider can follow or pass on.
const mrModes = lf.MRLocal | lf.MRVirtAddr | lf.MRAllocated | lf.MRProvKey

// An offer is one fi_info and what it is in our words.
type offer struct {
	fi   lf.Offer
	info fabric.Info
	id   lf.FID // lives as long as its list

	// delivered is the flag of a send that completes when it is in the memory of a receive, 0 if it
	// cannot be had: FI_DELIVERY_COMPLETE may come while the message waits in memory of libfabric.
	delivered uint64

	// forgets is the flag with which the provider never ends a write of no bytes.
	forgets uint64
}

// A query is what an offer is found by, and found again.
type query struct {
	ep            uint32
	atomic        bool
	node, service string
}

// ask lists the offers for q. The infos live in list, which the caller frees.
func (p *Provider) ask(q query) (offers []offer, list lf.InfoList, err error) {
	h := lf.Hints{Provider: p.opts.Provider, Source: p.opts.Source, Node: q.node, Service: q.service, EPType: q.ep, MRMode: mrModes,
		Caps: p.caps(q), TxOpFlags: lf.DeliveryComplete}
	if list, err = lf.GetInfo(&h); err != nil {
		return nil, list, fmt.Errorf("query libfabric for %q: %w", p.opts.Provider, cause(err))
	}
	seen := make(map[string]bool)
	for _, id := range list.All() {
		o := offer{fi: lf.Describe(id), id: id}
		if p.opts.Provider != "" && o.fi.Provider != p.opts.Provider || o.fi.Mode&^(lf.Context|lf.Context2) != 0 {
			continue
		}
		o.info = p.inWords(&o.fi)
		if key := o.info.FabricName + " " + o.info.DomainName; !seen[key] {
			seen[key] = true
			offers = append(offers, o)
		}
	}
	return offers, list, nil
}

// caps are the capabilities to ask for: those of q, and what libfabric grants to those only who
// ask. It is found out once.
func (p *Provider) caps(q query) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := query{ep: q.ep, atomic: q.atomic}
	caps, ok := p.granted[key]
	if ok {
		return caps
	}
	caps = lf.Msg | lf.RMA
	if q.atomic {
		caps |= lf.Atomic
	}
	for _, more := range []uint64{lf.Source, lf.LocalComm, lf.RemoteComm} {
		h := lf.Hints{Provider: p.opts.Provider, Source: p.opts.Source, EPType: q.ep, MRMode: mrModes, Caps: caps | more}
		if list, err := lf.GetInfo(&h); err == nil {
			list.Free()
			caps |= more
		}
	}
	p.granted[key] = caps
	return caps
}

// cause makes a libfabric number ours: they are the same.
func cause(err error) error {
	if errno := fabric.ErrnoOf(err); errno != 0 {
		return errno
	}
	return err
}

// inWords says what fi can do. What only an open domain knows is in Provider.limits.
func (p *Provider) inWords(fi *lf.Offer) fabric.Info {
	version, _ := p.Version()
	in := fabric.Info{
		Provider:        p.Name(),
		ProviderVersion: version,
		FabricName:      fi.Provider + ":" + fi.Fabric,
		DomainName:      fi.Domain,
		Caps:            fabric.CapMSG | fabric.CapRMA,
		Mode:            fabric.ModeKeyIsProof | fabric.ModeDenialFatal,
		EPType:          fabric.EPMsg,
		Order:           fabric.Order(fi.TxOrder&fi.RxOrder) & fabric.OrderAll, // bit by bit the same
		Limits: fabric.Limits{
			MaxMsg:     min(fi.MaxMsg, maxMsg),
			MaxInject:  fi.Inject,
			CQDataSize: int(fi.CQData),
			TxSize:     int(min(fi.TxSize, maxSlots)),
			RxSize:     int(min(fi.RxSize, maxSlots)),
			SegLimit:   int(min(fi.IOV, lf.MaxIOV)),
			RSegLimit:  int(min(fi.RMAIOV, lf.MaxIOV)),
			MRKeySize:  rawLen,
			BestOp:     1 << 20,
			OrderRAW:   min(fi.OrderRAW, maxMsg),
			OrderWAR:   min(fi.OrderWAR, maxMsg),
			OrderWAW:   min(fi.OrderWAW, maxMsg),
		},
	}
	if fi.EPType == lf.EPRDM {
		in.EPType = fabric.EPRDM
	}
	for _, c := range []struct {
		theirs uint64
		ours   fabric.Caps
	}{{lf.Atomic, fabric.CapAtomic}, {lf.LocalComm, fabric.CapLocalComm}, {lf.RemoteComm, fabric.CapRemoteComm}, {lf.Source, fabric.CapSource}} {
		if fi.Caps&c.theirs != 0 {
			in.Caps |= c.ours
		}
	}
	if fi.Provider == "shm" {
		in.Mode &^= fabric.ModeDenialFatal // refusals are answered one by one
		in.Caps |= fabric.CapLocalComm     // which it does not say
		in.Caps &^= fabric.CapSource       // 1.17 names the peer of number 0 where it does not know
	}
	for _, m := range []struct {
		theirs uint32
		ours   fabric.MRMode
	}{{lf.MRLocal, fabric.MRLocal}, {lf.MRVirtAddr, fabric.MRVirtAddr}, {lf.MRProvKey, fabric.MRProvKey}} {
		if fi.MRMode&m.theirs != 0 {
			in.MRMode |= m.ours
		}
	}
	if len(fi.Dest) > 0 && fi.AddrFormat != lf.FormatStr {
		in.Dest = addrText(fi.AddrFormat, fi.Dest)
	}
	return in
}

// delivered asks for FI_MATCH_COMPLETE. The tcp provider does not have it, but leaves a message on
// the socket until there is a receive.
func (p *Provider) delivered(q query, fi *lf.Offer) uint64 {
	h := lf.Hints{Provider: p.opts.Provider, Source: p.opts.Source, EPType: q.ep, MRMode: mrModes, Caps: p.caps(q), TxOpFlags: lf.MatchComplete}
	if list, err := lf.GetInfo(&h); err == nil {
		list.Free()
		return lf.MatchComplete
	}
	if fi.Provider == "tcp" && fi.EPType == lf.EPMsg {
		return lf.DeliveryComplete
	}
	return 0
}

// queries are what GetInfo asks for, best first. With atomics some providers keep less order, so
// these are for those who ask.
func queries(hints *fabric.Info, node, service string) []query {
	var out []query
	for _, ep := range []uint32{lf.EPMsg, lf.EPRDM} {
		ours := fabric.EPMsg
		if ep == lf.EPRDM {
			ours = fabric.EPRDM
		}
		if hints != nil && hints.EPType != 0 && hints.EPType != ours {
			continue
		}
		asked := fabric.Caps(0)
		if hints != nil {
			asked = hints.Caps &^ fabric.CapsSecondary
		}
		if asked == 0 || asked&fabric.CapAtomic != 0 {
			out = append(out, query{ep, true, node, service})
		}
		if asked&fabric.CapAtomic == 0 {
			out = append(out, query{ep, false, node, service})
		}
	}
	return out
}

// find is the offer that in, an answer of GetInfo, was made of, in a list that the caller frees.
func (p *Provider) find(in *fabric.Info) (offer, lf.InfoList, error) {
	q := query{ep: lf.EPMsg, atomic: in.Caps&fabric.CapAtomic != 0}
	if in.EPType == fabric.EPRDM {
		q.ep = lf.EPRDM
	}
	offers, list, err := p.ask(q)
	if err != nil {
		return offer{}, list, err
	}
	for _, o := range offers {
		if o.info.FabricName == in.FabricName && o.info.DomainName == in.DomainName {
			o.info.Limits = p.limits(&o)
			o.delivered = p.delivered(q, &o.fi)
			if o.fi.Provider == "shm" { // 1.17
				o.forgets = lf.DeliveryComplete
			}
			return o, list, nil
		}
	}
	list.Free()
	return offer{}, lf.InfoList{}, fmt.Errorf("find device %q on %q again: %w", in.DomainName, in.FabricName, fabric.ErrNoData)
}

// limits completes an offer's limits with those that libfabric reports for open objects only. They
// are opened once for each kind of offer.
func (p *Provider) limits(o *offer) fabric.Limits {
	key := fmt.Sprint(o.info.FabricName, " ", o.info.DomainName, " ", o.info.EPType, o.info.Caps)
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.measured[key]
	if !ok {
		m = measure(o)
		p.measured[key] = m
	}
	l := o.info.Limits
	l.MaxPrivate, l.MaxAtomic = m.private, m.atomic
	return l
}

// A measured has the limits that libfabric reports for open objects only.
type measured struct {
	private int    // bytes of private data
	atomic  uint64 // bytes of an atomic op of any kind
}

// measure opens what it must and closes it again. What cannot be had is zero.
func measure(o *offer) (m measured) {
	fab, err := lf.OpenFabric(o.id)
	if err != nil {
		return m
	}
	defer fab.Close()
	if o.info.EPType == fabric.EPMsg {
		if pep, err := lf.OpenPassive(fab, o.id); err == nil {
			m.private, _ = pep.MaxPrivate()
			_ = pep.Close()
		}
	}
	if o.info.Caps&fabric.CapAtomic == 0 {
		return m
	}
	dom, err := lf.OpenDomain(fab, o.id)
	if err != nil {
		return m
	}
	defer dom.Close()
	m.atomic = maxMsg
	for _, kind := range []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic} {
		op := fabric.AtomicSum
		if kind == fabric.OpCompareAtomic {
			op = fabric.AtomicCSwap
		}
		n, err := queryAtomic(dom, kind, op, fabric.Uint64)
		if err != nil {
			n = 0
		}
		m.atomic = min(m.atomic, uint64(n)*8)
	}
	return m
}
