// SPDX-License-Identifier: MIT

package core

import (
	"testing"

	"mori/core/config"
)

func TestNodeID(t *testing.T) {
	t.Cleanup(func() { config.SetLookup(nil) })
	config.SetLookup(func(string) (string, bool) { return "", false })
	a, err := NodeID("x")
	if b, again := NodeID("x"); a == "" || a != b || err != nil || again != nil {
		t.Errorf("two answers of one host: %q, %v and %q, %v", a, err, b, again)
	}
	config.SetLookup(func(name string) (string, bool) { return "rack7", name == config.NodeID })
	if id, err := NodeID("x"); id != "rack7" || err != nil {
		t.Errorf("%q, %v, want what %s says", id, err, config.NodeID)
	}
}
