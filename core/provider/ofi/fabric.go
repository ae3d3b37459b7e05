// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	lf "mori/native/libfabric"
)

// A network is a fabric.Fabric.
type network struct {
	util.FabricBase
	provider *Provider
	info     *fabric.Info
	fid      lf.FID
	engine   *engine

	mu      sync.Mutex
	waiting []*listener // closed, with unanswered requests
}

var _ fabric.Fabric = (*network)(nil)

// infoOr returns in, or the fabric's own Info if in names no device.
func (f *network) infoOr(in *fabric.Info) *fabric.Info {
	if in == nil || in.FabricName == "" {
		return f.info
	}
	return in
}

func (f *network) Domain(_ context.Context, in *fabric.Info) (fabric.Domain, error) {
	if err := f.Adopt(); err != nil {
		return nil, fmt.Errorf("open domain: %w", err)
	}
	d := &domain{network: f, imports: newImports()}
	d.CheckAddr = d.checkAddr
	var err error
	if d.offer, d.list, err = f.provider.find(f.infoOr(in)); err == nil {
		d.fid, err = lf.OpenDomain(f.fid, d.offer.id)
	}
	if err != nil {
		d.list.Free()
		f.Leave()
		return nil, fmt.Errorf("open domain: %w", cause(err))
	}
	d.atomics = queryAll(d.fid, d.offer.info.Limits.MaxAtomic)
	return d, nil
}

func (f *network) Close() error {
	first, err := f.Parent.Close()
	if !first {
		return err
	}
	f.mu.Lock()
	waiting := f.waiting
	f.mu.Unlock()
	for _, l := range waiting {
		l.abandon()
	}
	err = f.engine.stop()
	if err = errors.Join(err, f.fid.Close()); err != nil {
		return fmt.Errorf("close fabric: %w", cause(err))
	}
	return nil
}
