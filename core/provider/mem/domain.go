// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
	"mori/core/fabric/util/atomics"
	"mori/core/fabric/util/regions"
)

// A domain is a fabric.Domain.
type domain struct {
	util.DomainBase
	network *network
	regions *regions.Table
	imports *regions.Imports
}

var (
	_ fabric.Domain        = (*domain)(nil)
	_ fabric.AtomicQuerier = (*domain)(nil)
)

// Endpoint makes an endpoint of either type; see fabric.Domain.
func (d *domain) Endpoint(in *fabric.Info) (fabric.Endpoint, error) {
	in = in.Clone()
	switch in.EPType {
	case 0, fabric.EPMsg:
		return d.connector()
	case fabric.EPRDM:
		return d.datagrams(in)
	}
	return nil, fmt.Errorf("open endpoint of type %d: %w", in.EPType, fabric.ErrInvalid)
}

// datagrams makes an EPRDM endpoint whose carriers are endpoints of this domain.
func (d *domain) datagrams(in *fabric.Info) (fabric.Endpoint, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("open endpoint: %w", err)
	}
	return rdm.New(rdm.Config{
		Carrier: func() (rdm.Carrier, error) { return d.connector() },
		Listen:  func() (fabric.Listener, error) { return d.network.listen(in) },
		Limits:  limits,
		Log:     d.network.provider.opts.Logger,
		Leave:   d.Leave,
	}), nil
}

// QueryAtomic returns what package atomics supports; see fabric.AtomicQuerier.
func (d *domain) QueryAtomic(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType) (int, error) {
	return atomics.Query(kind, op, t)
}

func (d *domain) Reg(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (fabric.MR, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", buf.Len, err)
	}
	m, err := d.regions.Register(buf, access, key)
	if err != nil {
		d.Leave()
		return nil, err
	}
	return &region{MR: m, leave: sync.OnceFunc(d.Leave)}, nil
}

func (d *domain) Import(raw []byte) (fabric.RemoteMR, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("import region: %w", err)
	}
	r, err := d.imports.Import(raw)
	if err != nil {
		d.Leave()
		return nil, err
	}
	return &remote{Remote: r, leave: sync.OnceFunc(d.Leave)}, nil
}

func (d *domain) Close() error {
	first, err := d.Parent.Close()
	if first {
		d.network.Leave()
	}
	return err
}

// A region is a fabric.MR that its domain counts as a child.
type region struct {
	*regions.MR
	leave func()
}

func (m *region) Close() error {
	err := m.MR.Close()
	if err == nil {
		m.leave()
	}
	return err
}

// A remote is a fabric.RemoteMR that its domain counts as a child.
type remote struct {
	*regions.Remote
	leave func()
}

func (r *remote) Close() error {
	r.leave()
	return r.Remote.Close()
}
