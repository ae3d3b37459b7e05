// SPDX-License-Identifier: MIT

//go:build race

package ring

import "sync/atomic"

// Two ends in one process map a ring at two addresses. So the race detector does not see that one
// end's accesses are ordered with the other's. A word that both ends access shows it the order.
var order atomic.Uint64

// published is called before a counter of a ring is stored, and observed after it was loaded.
func published() { order.Add(1) }
func observed()  { order.Load() }
