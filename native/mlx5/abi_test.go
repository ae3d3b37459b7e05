// SPDX-License-Identifier: MIT

package mlx5

import (
	"testing"

	"mori/native/internal/layout"
)

// TestABI: structs, constants and prototypes of abi.h are those of libmlx5's own header.
func TestABI(t *testing.T) {
	abi := layout.Comparison{Ours: "abi.h", Guard: "MORI_MLX5_ABI_H", Vendor: "testdata/vendor.h"}
	abi.Need(t, "verbs", "libibverbs-dev")
	wrong, err := abi.Run()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	if err := abi.Compile("door.c", "-std=gnu11"); err != nil {
		t.Error(err)
	}
}
