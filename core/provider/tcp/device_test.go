// SPDX-License-Identifier: MIT

package tcp_test

import (
	"testing"

	"mori/core/device/devicetest"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/tcp"
	"mori/native/gpu/gputest"
)

func TestDevice(t *testing.T) {
	gputest.Need(t)
	fabrictest.TestDevice(t, open, devicetest.Places(t)...)
}

func TestDeviceChecked(t *testing.T) {
	gputest.Need(t)
	fabrictest.TestDevice(t, func(testing.TB) fabric.Provider { return tcp.New(tcp.Options{Links: 1, Sums: true}) }, devicetest.Places(t)[:1]...)
}
