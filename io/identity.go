// SPDX-License-Identifier: MIT

package io

// An identity is one incarnation of an engine. An engine that is restarted keeps its key and gets a
// new incarnation, so that nothing its predecessor did counts as its own.
type identity struct {
	key         string
	incarnation uint64
}

// identity returns who d describes. Incarnation 0 is unknown and equals no peer's.
func (d EngineDesc) identity() identity { return identity{d.Key, d.Incarnation} }
