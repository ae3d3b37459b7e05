// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"
	"strings"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// A datagram is an EPRDM endpoint.
type datagram struct {
	*endpoint
	src  fabric.Addr // the requested source address
	name fabric.Addr
}

var (
	_ fabric.Endpoint = (*datagram)(nil)
	_ fabric.Prober   = (*datagram)(nil)
)

func newDatagram(e *endpoint, src fabric.Addr) *datagram {
	e.peers = newPeers(e.domain.offer.fi.AddrFormat)
	e.ops.idle = e.peers.idle
	return &datagram{endpoint: e, src: src}
}

// BindAV sets the address vector of Op.Dest; see fabric.Endpoint.
func (e *datagram) BindAV(av fabric.AV) error {
	return e.Configure(func() error {
		v, ok := av.(*vector)
		switch {
		case !ok || v == nil:
			return fmt.Errorf("bind an address vector of another provider (%T): %w", av, fabric.ErrInvalid)
		case e.peers.av != nil:
			return fmt.Errorf("bind a second address vector: %w", fabric.ErrOpBadState)
		}
		if err := v.Bind(); err != nil {
			return err
		}
		e.peers.av = v
		return nil
	})
}

// Enable opens the libfabric endpoint; see fabric.Endpoint.
func (e *datagram) Enable() error {
	err := e.enableWith(func() error {
		if e.peers.av == nil {
			return fmt.Errorf("enable endpoint without an address vector: %w", fabric.ErrNoAV)
		}
		return e.open()
	})
	if err != nil {
		return err
	}
	e.peers.av.join(e)
	e.State.Connect()
	e.State.Connected()
	return nil
}

// Name returns the address of the libfabric endpoint; see fabric.Endpoint.
func (e *datagram) Name() (fabric.Addr, error) {
	switch {
	case isClosed(e.closing):
		return "", fabric.ErrClosed
	case e.State.Configure() == nil:
		return "", fmt.Errorf("name of an endpoint that is %v: %w", &e.State, fabric.ErrOpBadState)
	}
	return e.name, nil
}

// Close ends every op; see fabric.Endpoint.
func (e *datagram) Close() error {
	e.closeOnce.Do(func() {
		close(e.closing)
		e.close()
		if v := e.peers.av; v != nil {
			v.leave(e)
			v.Unbind()
		}
	})
	return nil
}

// insert inserts addresses into libfabric's address vector.
func (e *datagram) insert(addrs ...fabric.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers.insert(addrs)
}

// part removes an address once its ops have ended.
func (e *datagram) part(addr fabric.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.peers.byAddr[addr]; l != nil {
		l.gone = true
		e.ops.next(l)
	}
}

func (e *datagram) open() error {
	d := e.domain
	info := d.offer.id
	if e.src != "" {
		addr, err := addrBytes(d.offer.fi.AddrFormat, exactName(e.src))
		if err != nil {
			return err
		}
		o, list, err := d.network.provider.find(&d.offer.info)
		if err != nil {
			return err
		}
		defer list.Free()
		if err := lf.SetSrc(o.id, addr, d.offer.fi.AddrFormat); err != nil {
			return cause(err)
		}
		info = o.id
	}
	g := d.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	if err := e.endpoint.open(info); err != nil {
		return err
	}
	name, err := e.ops.fid.Name()
	if err != nil {
		return fmt.Errorf("name of endpoint: %w", cause(err))
	}
	if e.name = addrText(d.offer.fi.AddrFormat, name); e.src != "" && e.name == exactName(e.src) {
		e.name = e.src // equivalent for peers
	}
	return nil
}

// exactName returns a source address that shm uses unchanged. For other addresses, shm appends
// numbers after its own prefix to make them unique.
func exactName(a fabric.Addr) fabric.Addr {
	if rest, ok := strings.CutPrefix(string(a), "fi_shm://"); ok {
		return fabric.Addr("fi_ns://" + rest)
	}
	return a
}
