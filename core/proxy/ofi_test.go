// SPDX-License-Identifier: MIT

//go:build ofi

package proxy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/ofi"
)

// TestOverLibfabric runs what is run over each provider over reliable datagrams of libfabric, those
// that have atomics: ofi_rxm over TCP. A process of its own does it, since libfabric does not load
// beside the emulated libibverbs, which lacks what libfabric asks for.
func TestOverLibfabric(t *testing.T) {
	if os.Getenv(onlyEnv) != "" {
		t.Skip("this is the process that TestOverLibfabric starts")
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.run", "^(TestManyThreadsPut|TestWaitMeansThere|TestFetchingAdds.*|TestInterchange|TestBytes.*)$")
	cmd.Env = append(os.Environ(), onlyEnv+"=ofi", "LD_LIBRARY_PATH=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("%s", out)
	}
	if passed := bytes.Count(out, []byte("    --- PASS")); passed != 5 || !bytes.Contains(out, []byte("/ofi")) {
		t.Errorf("%d of 5 tests passed over libfabric:\n%s", passed, out)
	}
}

func init() {
	if os.Getenv(onlyEnv) == "ofi" {
		providers["ofi"] = func() fabric.Provider { return ofi.New(ofi.Options{Provider: "tcp;ofi_rxm", Source: "127.0.0.1"}) }
		needs["ofi"] = needLibfabric
	}
}

func needLibfabric(tb testing.TB) {
	tb.Helper()
	_, err := ofi.New(ofi.Options{}).GetInfo(context.Background(), "", "", nil)
	if !errors.Is(err, fabric.ErrNotSupported) {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "ofi") {
		tb.Fatalf("MORI_REQUIRE has ofi: %v", err)
	}
	tb.Skip(err)
}
