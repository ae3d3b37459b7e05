// SPDX-License-Identifier: MIT

package verbs_test

import (
	"path/filepath"
	"testing"

	"mori/native/internal/layout"
)

var abi = layout.Comparison{Ours: "abi.h", Guard: "MORI_VERBS_ABI_H", Vendor: "testdata/vendor.h",
	Growing: []string{"ibv_port_attr"}} // newer ones have active_speed_ex behind its last field

func needHeader(t *testing.T) {
	t.Helper()
	notInGuests(t)
	compiler(t)
	abi.Need(t, "verbs", "libibverbs-dev")
}

// TestABI: structs and constants of abi.h are those of libibverbs' own header.
func TestABI(t *testing.T) {
	needHeader(t)
	wrong, err := abi.Run()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// TestABIOfFunctions: the package and the emulated library compile with libibverbs' own header in
// place of abi.h, so prototypes agree.
func TestABIOfFunctions(t *testing.T) {
	needHeader(t)
	for pattern, standard := range map[string]string{
		"*.c": "-std=gnu11", "testdata/raw.c": "-std=gnu11", "verbstest/testdata/*.cpp": "-std=c++17",
	} {
		sources, err := filepath.Glob(pattern)
		if err != nil || len(sources) == 0 {
			t.Fatalf("%s: %d sources, %v", pattern, len(sources), err)
		}
		for _, source := range sources {
			if err := abi.Compile(source, standard); err != nil {
				t.Error(err)
			}
		}
	}
}
