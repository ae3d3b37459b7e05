// SPDX-License-Identifier: MIT

//go:build race

package ring

import "sync/atomic"

// Two ends in one process map a ring at two addresses, so the race detector does not see that one
// orders the other's memory. A word that both touch shows it the order.
var order atomic.Uint64

// published is called before a counter of a ring is stored, observed after it was loaded.
func published() { order.Add(1) }
func observed()  { order.Load() }
