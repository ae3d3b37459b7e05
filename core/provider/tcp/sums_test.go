// SPDX-License-Identifier: MIT

package tcp_test

import (
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/tcp"
)

func TestFabricWithSums(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs without sums, too")
	}
	fabrictest.Test(t, func(testing.TB) fabric.Provider { return tcp.New(tcp.Options{Sums: true}) }, fabric.EPMsg, fabric.EPRDM)
}
