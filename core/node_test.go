// SPDX-License-Identifier: MIT

package core

import (
	"testing"

	"mori/core/config"
)

func TestNodeID(t *testing.T) {
	t.Cleanup(func() { config.SetLookup(nil) })
	config.SetLookup(func(string) (string, bool) { return "", false })
	if a, b := NodeID("x"), NodeID("x"); a == "" || a != b {
		t.Errorf("two answers of one host: %q and %q", a, b)
	}
	config.SetLookup(func(name string) (string, bool) { return "rack7", name == config.NodeID })
	if id := NodeID("x"); id != "rack7" {
		t.Errorf("%q, want what %s says", id, config.NodeID)
	}
}
