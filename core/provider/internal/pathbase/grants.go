// SPDX-License-Identifier: MIT

package pathbase

import (
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// A Grants has the grants of one connection in both directions. R describes a region of the peer.
type Grants[R any] struct {
	Held  grant.Holder[R] // to this side, of the peer's regions
	Given grant.Granter   // to the peer, of regions of table
	Out   grant.Sender

	ops *Ops
}

// Init prepares the Grants. describe is what the peer needs to reach a region, parse its inverse.
func (g *Grants[R]) Init(ops *Ops, table *regions.Table, describe func(*regions.MR) ([]byte, error), parse func([]byte) (R, error)) {
	g.ops = ops
	g.Out.Send = ops.Send
	g.Held.Out, g.Held.Parse = &g.Out, parse
	g.Given.Out, g.Given.Table, g.Given.Describe = &g.Out, table, describe
}

// OnFrame takes a frame of package grant.
func (g *Grants[R]) OnFrame(kind uint8, body []byte) error {
	return grant.OnFrame(&g.Given, &g.Held, kind, body)
}

// Find returns the grant, or refusal, of a region of the peer. The first caller requests it.
// Without wait the error is ErrNotYet while the peer has not answered; otherwise it is the cause of
// Ops.Stop.
func (g *Grants[R]) Find(key fabric.RegionKey, wait bool) (*grant.Grant[R], error) {
	l := g.Held.Find(key)
	switch {
	case l != nil && l.Await(wait, g.ops.Stopped):
		return l, nil
	case l != nil && !wait:
		return nil, ErrNotYet
	}
	return nil, g.ops.Cause()
}

// Enter begins an access under a grant. The caller ends it with l.Use.Leave.
func Enter[R any](l *grant.Grant[R]) error {
	if l.Use.Enter() {
		return nil
	}
	return local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.Key.ID)
}
