// SPDX-License-Identifier: MIT

package stream

import (
	"mori/core/fabric"
	"mori/core/fabric/util"
)

// SendCQ is the queue of completions of ops that are not receives.
func (ep *Endpoint) SendCQ() *util.CQ { return ep.queues.Tx }

// Source is the peer's number for completions.
func (ep *Endpoint) Source() fabric.AVAddr { return ep.from() }
