// SPDX-License-Identifier: MIT

package pathbase

import (
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// A Grants holds the grants of one connection in both directions. R describes a region of the peer.
type Grants[R any] struct {
	Held  grant.Holder[R] // this side's grants for the peer's regions
	Given grant.Granter   // the peer's grants for regions of table
	Out   grant.Sender

	ops *Ops
}

// Init initializes the Grants. describe returns what the peer needs to access a region, and parse
// decodes it.
func (g *Grants[R]) Init(ops *Ops, table *regions.Table, describe func(*regions.MR) ([]byte, error), parse func([]byte) (R, error)) {
	g.ops = ops
	g.Out.Send = ops.Send
	g.Held.Out, g.Held.Parse = &g.Out, parse
	g.Given.Out, g.Given.Table, g.Given.Describe = &g.Out, table, describe
}

// OnFrame handles a frame of package grant.
func (g *Grants[R]) OnFrame(kind uint8, body []byte) error {
	return grant.OnFrame(&g.Given, &g.Held, kind, body)
}

// Find returns the grant, or refusal, of a region of the peer. The first call requests it. If wait
// is not set, Find returns ErrNotYet while the peer has not answered. Any other error is the cause
// of Ops.Stop.
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

// Enter begins an access under a grant. The caller ends the access with l.Use.Leave.
func Enter[R any](l *grant.Grant[R]) error {
	if l.Use.Enter() {
		return nil
	}
	return local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.Key.ID)
}
