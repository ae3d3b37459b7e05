// SPDX-License-Identifier: MIT

package p2p

import (
	"testing"

	"mori/core/device/devicetest"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
)

func openQuiet(testing.TB) fabric.Provider { return New(Options{Log: quiet}) }

func TestFabric(t *testing.T) {
	gputest.Need(t)
	fabrictest.Test(t, openQuiet, fabric.EPMsg, fabric.EPRDM)
}

func TestDevice(t *testing.T) {
	gputest.Need(t)
	fabrictest.TestDevice(t, openQuiet, devicetest.Places(t)...)
}
