// SPDX-License-Identifier: MIT

package io

import (
	"mori/core/device"
	"mori/io/internal/gate"
)

// An After holds a transfer back until a GPU has come so far. The zero value holds nothing back.
type After = gate.After

// AfterEvent begins when e has happened, as it was recorded last at the time of the call. e may be
// recorded again or destroyed after that.
func AfterEvent(e *device.Event) After { return gate.Event(e) }

// AfterStream begins when s has done what it was given before the call.
func AfterStream(s *device.Stream) After { return gate.Stream(s) }
