// SPDX-License-Identifier: MIT

package mlx5

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestLoad: where Debian's ibverbs-providers is, all symbols are found; a NIC that is not there is told from that.
func TestLoad(t *testing.T) {
	if err := Load(); err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("the error wraps no ErrUnsupported: %v", err)
		}
		if strings.Contains(os.Getenv("MORI_REQUIRE"), "verbs") {
			t.Fatalf("MORI_REQUIRE: %v", err)
		}
		t.Skip(err)
	}
	_, err := Open("mlx5_of_nobody")
	// Without the kernel's module libibverbs says that it is not there (ENOSYS), with it that there is no such device.
	if !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.ENOSYS) {
		t.Errorf("open a NIC that there is not: %v", err)
	}
	if !Built() {
		t.Error("loaded, and not built")
	}
}
