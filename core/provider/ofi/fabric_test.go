//go:build ofi

// SPDX-License-Identifier: MIT

package ofi_test

import (
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/ofi"
)

func TestFabric(t *testing.T) {
	for _, name := range []string{"tcp", "tcp;ofi_rxm", "shm"} {
		t.Run(name, func(t *testing.T) {
			fabrictest.Test(t, func(testing.TB) fabric.Provider {
				opts := ofi.Options{Provider: name}
				if name != "shm" {
					opts.Source = "127.0.0.1"
				}
				return ofi.New(opts)
			})
		})
	}
}
