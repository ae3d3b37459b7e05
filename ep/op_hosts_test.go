// SPDX-License-Identifier: MIT

package ep

import (
	"testing"

	"mori/native/verbs/verbstest"
)

// hosts has the host of each rank of a test.
var hosts = map[string][]string{
	"each on its own": {"a", "b", "c"},
	"two and two":     {"a", "b", "a", "b"},
}

func TestDispatchAndCombineBetweenHosts(t *testing.T) {
	for name, nodes := range hosts {
		t.Run(name, func(t *testing.T) { together(t, smallConfig(len(nodes)), Options{}, nodes, journey(15)) })
	}
}

// The same over NICs, which really carry the rows.
func TestDispatchAndCombineByNICs(t *testing.T) {
	verbstest.Need(t)
	t.Setenv("FABRIC_PROVIDER", "verbs")
	for name, nodes := range hosts {
		t.Run(name, func(t *testing.T) { together(t, smallConfig(len(nodes)), Options{}, nodes, journey(15)) })
	}
	t.Run("rows of a KiB", func(t *testing.T) {
		cfg := smallConfig(2)
		cfg.HiddenDim = 256
		before := carried(t)
		together(t, cfg, Options{}, []string{"a", "b"}, journey(5))
		if moved := carried(t) - before; !verbstest.Real() && moved < 1<<16 {
			t.Errorf("NICs have carried %d bytes", moved)
		}
	})
}

// carried returns how many bytes the emulated NICs have carried, 0 for real ones.
func carried(t *testing.T) uint64 {
	if verbstest.Real() {
		return 0
	}
	return verbstest.Bytes(t, 0) + verbstest.Bytes(t, 1)
}
