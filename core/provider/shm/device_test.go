// SPDX-License-Identifier: MIT

package shm

import (
	"testing"

	"mori/core/device/devicetest"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
)

func TestDevice(t *testing.T) {
	gputest.Need(t)
	for _, mode := range []string{"cma", "memmove"} { // device memory uses the socket in both modes
		t.Run(mode, func(t *testing.T) {
			fabrictest.TestDevice(t, func(testing.TB) fabric.Provider { return New(modes[mode]) }, devicetest.Places(t)[:1]...)
		})
	}
}
