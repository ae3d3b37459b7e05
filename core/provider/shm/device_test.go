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
	for _, mode := range []string{"cma", "memmove"} { // and it goes by the socket
		t.Run(mode, func(t *testing.T) {
			fabrictest.TestDevice(t, func(testing.TB) fabric.Provider { return New(modes[mode]) }, devicetest.Places(t)[:1]...)
		})
	}
}
