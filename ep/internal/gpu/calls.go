// SPDX-License-Identifier: MIT

package gpu

import (
	"fmt"

	"mori/core/device"
	"mori/ep/internal/call"
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
	"mori/native/abi"
)

// calls checks the calls of an op and launches their kernels on the current stream.
type calls struct {
	*buffers
	*streams
	cfg     plan.Config
	layout  plan.Layout
	opts    Options
	state   *call.State
	dev     *device.Device
	kernels *kernels
	hosts   *hosts // nil if loads and stores reach all ranks
	chooser *launch.Chooser
	health  *health

	args device.Args
	last lastDispatch
	sent sentCall
	keep bool // combine leaves the number of received rows as it is
}

// A lastDispatch has what later calls need to know of the last dispatch.
type lastDispatch struct {
	tokens   int
	weights  bool // the tokens had weights
	recorded bool // it had no Route, so forwarders have its records
}

// A sentCall is a call that was sent and has not been received. The zero value is none.
type sentCall struct {
	kind     sentKind
	dispatch abi.EPDispatchArgs
	combine  combineCall
	grid     device.Grid
}

type sentKind int

const (
	sentNothing sentKind = iota
	sentDispatch
	sentCombine
)

// usable returns why a call cannot begin, or nil.
func (c *calls) usable() error {
	if err := c.health.usable(); err != nil {
		return err
	}
	if c.sent.kind != sentNothing {
		return fmt.Errorf("the recv of the previous send is missing: %w", plan.ErrState)
	}
	return nil
}

// launch queues a kernel. On error this rank is out of step.
func (c *calls) launch(act string, f *device.Function, grid device.Grid, args *device.Args) error {
	return c.state.Break(c.streams.launch(act, f, grid, args))
}

// Dispatch queues a dispatch. The number of rows is -1, because only the GPU knows it.
func (c *calls) Dispatch(b call.Batch) (rows int, err error) {
	return -1, c.dispatch(b, phaseSend|phaseRecv)
}

// DispatchSend queues the send of a dispatch.
func (c *calls) DispatchSend(b call.Batch) error { return c.dispatch(b, phaseSend) }

func (c *calls) dispatch(b call.Batch, phases uint32) error {
	a, err := c.dispatchArgs(b)
	if err != nil {
		return fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	f, grid := c.dispatchKernel(c.chooser.Choose(b.Launch, launch.Dispatch, b.N, a.RowBytes), a.RowBytes)
	if err := c.launch("dispatch", f, grid, c.packDispatch(&a, phases)); err != nil {
		return err
	}
	c.last = lastDispatch{tokens: b.N, weights: b.Weights != 0, recorded: b.Route == nil}
	if phases&phaseRecv == 0 {
		c.sent.kind, c.sent.dispatch, c.sent.grid = sentDispatch, a, grid
	}
	return c.health.check()
}

// dispatchArgs returns an error if the call does not fit the op.
func (c *calls) dispatchArgs(b call.Batch) (a abi.EPDispatchArgs, err error) {
	if err := c.usable(); err != nil {
		return a, err
	}
	rowBytes, err := b.Check(&c.cfg, &c.layout)
	if err != nil {
		return a, err
	}
	a = abi.EPDispatchArgs{Op: c.at.op, Input: b.Input, Indices: b.Indices, Weights: b.Weights, RowBytes: rowBytes,
		Tokens: uint32(b.N), Signature: uint32(b.Signature(rowBytes))}
	if n := c.layout.ScaleBytes(); b.Scales != 0 && n != 0 {
		a.Scales, a.ScaleBytes = b.Scales, uint32(n)
	}
	if b.Route != nil {
		a.Route = b.Route.Slots
	}
	return a, nil
}

// dispatchKernel returns the kernel of a dispatch, and its grid.
func (c *calls) dispatchKernel(s launch.Shape, rowBytes uint64) (*device.Function, device.Grid) {
	if c.hosts == nil {
		return c.kernels.dispatch, c.kernels.dispatchGrid(s, rowBytes, dispatchShared)
	}
	return c.kernels.dispatchHosts, c.kernels.dispatchGrid(s, rowBytes, dispatchHostsShared)
}

// DispatchRecv queues the rest of a dispatch.
func (c *calls) DispatchRecv() (rows int, err error) {
	if c.sent.kind != sentDispatch {
		return -1, fmt.Errorf("dispatch_recv without its send: %w", plan.ErrState)
	}
	c.sent.kind = sentNothing
	if err := c.usable(); err != nil {
		return -1, fmt.Errorf("dispatch_recv: %w", err)
	}
	f, grid := c.kernels.dispatch, c.kernels.grid(launch.Shape{Blocks: 1, Warps: 1})
	if c.hosts != nil { // it copies records of other hosts to their slots
		f, grid = c.kernels.dispatchHosts, c.sent.grid
	}
	if err := c.launch("dispatch_recv", f, grid, c.packDispatch(&c.sent.dispatch, phaseRecv)); err != nil {
		return -1, err
	}
	return -1, c.health.check()
}

// packDispatch returns the argument of the kernel of a dispatch.
func (c *calls) packDispatch(a *abi.EPDispatchArgs, phases uint32) *device.Args {
	a.Phases = phases
	if c.hosts == nil {
		return argument(&c.args, a)
	}
	return argument(&c.args, &abi.EPHostsDispatchArgs{Call: *a, Hosts: c.at.hosts})
}

// Tokens returns how many tokens this rank's last dispatch had.
func (c *calls) Tokens() int { return c.last.tokens }

// Slots copies the routing map of the last dispatch to an address.
func (c *calls) Slots(to uint64) error {
	if c.last.tokens == 0 {
		return nil
	}
	return c.streams.current.Copy(to, c.at.slots, uint64(c.last.tokens*c.cfg.TopK)*plan.Int32Bytes)
}
