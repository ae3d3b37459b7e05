//go:build ofi

// SPDX-License-Identifier: MIT

package ofi_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/ofi"
)

// unfit are the cases that libfabric 1.17 itself does not hold, by libfabric's provider and case.
var unfit = map[string]map[string]string{
	"tcp": {},
	"tcp;ofi_rxm": {
		"denied/without right or bounds nothing is touched": "ofi_rxm makes every region readable, for its rendezvous",
	},
	"shm": {
		"message/a message that is too long is cut": "shm hangs in the close that follows",
	},
}

// opener makes providers over libfabric's name, on the loopback interface, and skips the cases that are unfit.
func opener(name string) fabrictest.Open {
	opts := ofi.Options{Provider: name}
	if name != "shm" {
		opts.Source = "127.0.0.1"
	}
	return func(tb testing.TB) fabric.Provider {
		for what, why := range unfit[name] {
			if strings.HasSuffix(tb.Name(), "/"+strings.ReplaceAll(what, " ", "_")) {
				tb.Skipf("libfabric 1.17: %s", why)
			}
		}
		return ofi.New(opts)
	}
}

// needLibfabric skips the test if there is no libfabric here, unless MORI_REQUIRE has ofi in its list.
func needLibfabric(t *testing.T) {
	_, err := ofi.New(ofi.Options{}).GetInfo(context.Background(), "", "", nil)
	if !errors.Is(err, fabric.ErrNotSupported) {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "ofi") {
		t.Fatalf("MORI_REQUIRE has ofi: %v", err)
	}
	t.Skip(err)
}

func TestFabric(t *testing.T) {
	needLibfabric(t)
	for name, typ := range map[string]fabric.EPType{"tcp": fabric.EPMsg, "tcp;ofi_rxm": fabric.EPRDM, "shm": fabric.EPRDM} {
		t.Run(name, func(t *testing.T) { fabrictest.Test(t, opener(name), typ) })
	}
}

func TestUnfitCasesExist(t *testing.T) {
	cases := fabrictest.Cases()
	for name, whats := range unfit {
		for what := range whats {
			if !slices.Contains(cases, what) {
				t.Errorf("%s: there is no case %q", name, what)
			}
		}
	}
}
