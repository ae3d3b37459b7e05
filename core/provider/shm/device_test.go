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
	for name, opts := range modes {
		t.Run(name, func(t *testing.T) {
			fabrictest.TestDevice(t, func(testing.TB) fabric.Provider { return New(opts) }, devicetest.Places(t)[:1]...)
		})
	}
}
