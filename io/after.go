// SPDX-License-Identifier: MIT

package io

import (
	"mori/core/device"
	"mori/io/internal/gate"
)

// An After delays a transfer until a GPU has reached a point. The zero value does not delay.
type After = gate.After

// AfterEvent waits for the latest record of e before the call. The caller may record e again or
// destroy it afterwards.
func AfterEvent(e *device.Event) After { return gate.Event(e) }

// AfterStream waits for the work queued on s before the call.
func AfterStream(s *device.Stream) After { return gate.Stream(s) }
