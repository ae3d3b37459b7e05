// SPDX-License-Identifier: MIT

package control

import (
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// A Host is the engine that a Server serves. Its methods are safe for concurrent use.
type Host interface {
	// Admits returns why the engine may not connect, nil if it may. It does not block.
	Admits(identity.ID) error

	// Knows reports whether an engine with this key is registered.
	Knows(key string) bool

	// Offer returns where transports listen, and whether the host wants notifications of arrivals.
	Offer() (endpoints []message.Endpoint, notify bool)

	// RegionSize returns the size in bytes of the region with this key. ok is false if the region
	// does not exist.
	RegionSize(descriptor.RegionKey) (size uint64, ok bool)

	// Drop closes the data connection that was opened with a token, and reports whether it existed.
	// When Drop returns, that connection can write no more bytes to this process.
	Drop(token []byte) (found bool)

	// TakeTags keeps the tags that the engine who sent, and returns how many it kept.
	TakeTags(who identity.ID, all []message.Tag) int
}
