// SPDX-License-Identifier: MIT

package pathbase

import (
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/grant"
)

// A Conn is the part of a conn.Port that a Member needs.
type Conn interface {
	Fail(err error) // ends the connection, and with it all its grants in bounded time
	Peer() fabric.Addr
}

// A Member is a data path as its domain sees it.
type Member struct {
	Conn    Conn
	Granter *grant.Granter
	Holds   func(region uint64) bool // whether a pending op keeps a local region open
}

// Revoke revokes all grants of a region and returns when no peer can touch it any more: the grants
// came back, or their connections have ended. A peer that does neither within the time is
// disconnected.
func Revoke(all []Member, region uint64, within time.Duration) {
	called := make([]grant.Revocation, 0, len(all))
	for _, m := range all {
		called = append(called, grant.Revocation{From: m.Conn, Grants: m.Granter.Revoke(region)})
	}
	grant.AwaitReturns(called, within)
}

// DisconnectHolders ends the connections whose pending ops keep a closed region open and make no
// progress.
func DisconnectHolders(all []Member, region uint64) {
	for _, m := range all {
		if m.Holds(region) {
			m.Conn.Fail(fmt.Errorf("work between %s and region %d, which was closed, stands still: %w", m.Conn.Peer(), region, fabric.ErrTimeout))
		}
	}
}
