// SPDX-License-Identifier: MIT

package remote

import (
	"context"
	"errors"

	"mori/core"
	"mori/core/fabric"
)

// An endpoint is the provider's objects of a Network.
type endpoint struct {
	info     *fabric.Info
	registry *fabric.Registry
	fab      fabric.Fabric
	dom      fabric.Domain
	cq       fabric.CQ
	av       fabric.AV
	ep       fabric.Endpoint
}

// open opens the endpoint at host for n PEs. Its completions go to ops.
func (e *endpoint) open(ctx context.Context, host string, n int, ops *pool) (err error) {
	e.info.Src = core.ListenAddr(e.info.Provider, host)
	if e.fab, err = e.registry.Open(ctx, e.info); err != nil {
		return err
	}
	if e.dom, err = e.fab.Domain(ctx, e.info); err != nil {
		return err
	}
	if e.cq, err = e.dom.CQ(2 * maxPending); err != nil {
		return err
	}
	if e.av, err = e.dom.AV(n); err != nil {
		return err
	}
	if e.ep, err = e.dom.Endpoint(e.info); err != nil {
		return err
	}
	if err = errors.Join(e.ep.BindCQ(e.cq, fabric.DirTransmit|fabric.DirRecv, false), e.ep.BindAV(e.av)); err != nil {
		return err
	}
	if err = e.ep.Enable(); err != nil {
		return err
	}
	ops.cq = e.cq
	e.cq.OnReady(ops.reap)
	return nil
}

// close frees everything except ep, which is already closed.
func (e *endpoint) close() error {
	var errs []error
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.av != nil {
		errs = append(errs, e.av.Close())
	}
	if e.dom != nil {
		errs = append(errs, e.dom.Close())
	}
	if e.fab != nil {
		errs = append(errs, e.fab.Close())
	}
	return errors.Join(errs...)
}

// piece returns the length of an op at which the provider is fastest.
func (e *endpoint) piece() uint64 {
	l := &e.info.Limits
	if l.BestOp > 0 {
		return min(l.BestOp, l.MaxMsg)
	}
	return l.MaxMsg
}
