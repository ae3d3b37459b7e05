// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// Bounds for what libfabric does not bound: lengths are added up, and slots take memory.
const (
	maxMsg   = 1 << 40
	maxSlots = 4096
)

// mrModes are the rules that this provider can follow or pass on to the caller.
const mrModes = lf.MRLocal | lf.MRVirtAddr | lf.MRAllocated | lf.MRProvKey

// An offer is one fi_info and its fabric.Info.
type offer struct {
	fi   lf.Offer
	info fabric.Info
	id   lf.FID // valid as long as its list

	// delivered is the flag for a send that completes when it is in the memory of a receive, or 0 if
	// unsupported. FI_DELIVERY_COMPLETE may come while the message waits in memory of libfabric.
	delivered uint64

	// forgets is the flag with which the provider never completes a write of no bytes.
	forgets uint64
}

// A query is the arguments that find an offer, and find it again.
type query struct {
	ep            uint32
	atomic        bool
	node, service string
}

// ask returns the offers for q. The infos belong to list, which the caller frees.
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

// caps returns the capabilities to request: those of q, and those that libfabric grants only on
// request. It determines them once.
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

// cause converts a libfabric number; the numbers are the same.
func cause(err error) error {
	if errno := fabric.ErrnoOf(err); errno != 0 {
		return errno
	}
	return err
}

// inWords converts fi to a fabric.Info. Provider.limits adds what only an open domain reports.
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
		Order:           fabric.Order(fi.TxOrder&fi.RxOrder) & fabric.OrderAll, // same bits
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
		in.Mode &^= fabric.ModeDenialFatal // refusals are answered individually
		in.Caps |= fabric.CapLocalComm     // not reported by the provider
		in.Caps &^= fabric.CapSource       // 1.17 reports peer 0 for unknown peers
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

// delivered requests FI_MATCH_COMPLETE. The tcp provider does not support it, but leaves a message
// on the socket until there is a receive.
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

// queries returns the queries of GetInfo, best first. With atomics some providers guarantee less
// order, so only hints that request atomics query them.
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

// find returns the offer from which GetInfo made in, in a list that the caller frees.
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

// limits adds to an offer's limits those that libfabric reports only for open objects. It opens the
// objects once for each kind of offer.
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

// A measured has the limits that libfabric reports only for open objects.
type measured struct {
	private int    // bytes of private data
	atomic  uint64 // bytes of an atomic op of any kind
}

// measure opens the objects and closes them again. Unavailable limits are zero.
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
