// SPDX-License-Identifier: MIT

package verbstest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"mori/native/internal/emulate"
	"mori/native/verbs"
)

// emulated is the library.
var emulated = emulate.Library{
	What: "emulated libibverbs", File: "libibverbs.so.1", Folder: "MORI_EMULATED_VERBS",
	Script: "native/verbs/verbstest/testdata/emulator.sh", Sources: []string{"native/verbs/verbstest/testdata", "native/verbs/abi.h"},
	Compilers: []emulate.Compiler{emulate.CXX},
	Steering: []string{
		"FAKE_VERBS", "FAKE_VERBS_COUNT", "FAKE_VERBS_LIMITS", "FAKE_VERBS_SEED", "FAKE_VERBS_TIMEOUT_MS", "FAKE_VERBS_RNR_MS", "FAKE_VERBS_PEERMEM",
	},
}

// absent is why there is no device to test on; nil if there is one.
var absent error

// Main is TestMain for packages whose tests use RDMA devices: it brings some up, runs the tests by
// run, by default m.Run, and exits.
func Main(m *testing.M, run ...func(*testing.M) int) { emulate.Main(m, Start, run...) }

// Start is what Main does before it runs tests, for a TestMain that does more. It comes before the
// first use of package verbs.
func Start() {
	if Real() {
		return
	}
	absent = emulated.Start()
}

// Real reports whether the tests run on real devices, and nothing is emulated. Devices of soft-RoCE
// are real.
func Real() bool { return emulate.Required("rdma") }

// Need skips a test where there are no devices and none can be emulated, or fails it if
// MORI_REQUIRE has verbs in its list. It fails it, too, where fewer have a port that is up than it
// needs: one, if it says nothing.
func Need(tb testing.TB, count ...int) {
	tb.Helper()
	n := 1
	if len(count) > 0 {
		n = count[0]
	}
	needAny(tb)
	if err := check(n); err != nil {
		tb.Fatalf("the devices cannot be used (real: %v): %v", Real(), err)
	}
}

// NeedEmulated skips a test where the devices are real: it does what only emulated ones can be made
// to.
func NeedEmulated(tb testing.TB) {
	tb.Helper()
	if Real() {
		tb.Skip("the test needs an emulated RDMA device, but these are real")
	}
	needAny(tb)
}

// needAny skips a test where there is no device and none can be emulated, or fails it if
// MORI_REQUIRE has verbs in its list.
func needAny(tb testing.TB) {
	tb.Helper()
	switch {
	case absent == nil:
	case emulate.Required("verbs"):
		tb.Fatalf("MORI_REQUIRE has verbs: %v", absent)
	default:
		tb.Skip(absent)
	}
}

// check returns why there are not n devices with a port that is up.
func check(n int) error {
	devices, err := verbs.Devices()
	if err != nil {
		return err
	}
	up := 0
	for _, d := range devices {
		if err := active(d.Name); err != nil {
			fmt.Fprintln(os.Stderr, "RDMA device", d.Name+":", err)
			continue
		}
		up++
	}
	if up < n {
		return fmt.Errorf("%d of %d RDMA devices have an active port, the test needs %d", up, len(devices), n)
	}
	return nil
}

func active(name string) error {
	ctx, err := verbs.Open(name)
	if err != nil {
		return err
	}
	port, err := ctx.Port(1)
	if err == nil && port.State != verbs.PortActive {
		err = fmt.Errorf("port 1 is %v", port.State)
	}
	return errors.Join(err, ctx.Close())
}
