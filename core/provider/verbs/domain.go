// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/pathbase"
)

// domains are the domains of one fabric and what they share: the devices.
type domains struct {
	pathbase.Domains[*domain]

	opts     *Options
	settings Settings
	nics     []*nic
	spares   spares
	leasing  chan struct{} // has an element for each op that is registering its memory
}

// A domain is what its data paths share: the regions' registrations with the devices. Once a region
// has been prefetched, the domain lives as long as the conn.Domain, so that registrations outlive
// connections.
type domain struct {
	all     *domains
	table   *regions.Table
	regions pathbase.Registrations[*registration]
}

func newDomains(opts *Options, s Settings, nics []*nic) *domains {
	ds := &domains{opts: opts, settings: s, nics: nics, leasing: make(chan struct{}, maxLeasing)}
	ds.Within = opts.releaseWait
	ds.Open = func(key *conn.Domain) *domain { return newDomain(ds, key.MRs()) }
	// The queue pairs of a disconnected peer are destroyed, so no device uses the region now.
	ds.Drop = func(d *domain, region uint64) { d.regions.Drop(region) }
	ds.Close = func(d *domain) { d.regions.Close() }
	return ds
}

func newDomain(all *domains, table *regions.Table) *domain {
	d := &domain{all: all, table: table}
	log, within := all.opts.Log, all.opts.releaseWait
	d.regions.Table, d.regions.Within = table, within
	d.regions.Stuck = func(region uint64) {
		log.Error("verbs: a device did not finish its work, memory stays registered", "region", region, "after", within)
	}
	d.regions.Failed = func(region uint64, err error) {
		log.Warn("verbs: deregister a region from its device", "region", region, "error", err)
	}
	return d
}

// watch prepares a new domain of the fabric.
func (ds *domains) watch(d *conn.Domain) {
	d.MRs().OnPrefetch(func(mr *regions.MR) error { return ds.prefetch(d, mr) })
	ds.Watch(d)
}

// attach makes the data path of a new connection.
func (ds *domains) attach(port conn.Port, extra any) (conn.DataPath, error) {
	dialed, ok := extra.(bool)
	if !ok {
		return nil, fmt.Errorf("connection without a prelude: %w", fabric.ErrProtocol)
	}
	if err := ds.anyUp(); err != nil {
		return nil, err
	}
	dp := newDataPath(port, ds, port.Domain().MRs(), dialed)
	dp.domain = ds.Join(port.Domain(), &dp.member)
	dp.setup.begin()
	return dp, nil
}

// anyUp returns nil if a device is usable now. Otherwise there is no point in connecting.
func (ds *domains) anyUp() error {
	var why []error
	for _, n := range ds.nics {
		err := n.up()
		if err == nil {
			return nil
		}
		why = append(why, err)
	}
	return fmt.Errorf("no RDMA device to use: %w", errors.Join(why...))
}

// prefetch registers a region with the devices before a connection needs it.
func (ds *domains) prefetch(key *conn.Domain, mr *regions.MR) error {
	g := ds.Keep(key).registrationOf(mr, true)
	if g == nil {
		return fmt.Errorf("it is being closed: %w", fabric.ErrNoKey)
	}
	defer g.use.Leave()
	return g.err
}
