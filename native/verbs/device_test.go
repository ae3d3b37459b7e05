// SPDX-License-Identifier: MIT

package verbs_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

func required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), what)
}

func TestDevices(t *testing.T) {
	if d, err := verbs.Devices(); required("verbs") && len(d) == 0 {
		t.Fatal("MORI_REQUIRE has verbs, and there is no device: ", err)
	}
	verbstest.Need(t)
	devices, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		ctx, err := verbs.Open(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		attr, err := ctx.Query()
		if err != nil || attr.Ports < 1 || attr.MaxQP < 1 || attr.MaxQPWR < 1 || attr.MaxSGE < 1 || attr.MaxCQE < 1 || attr.MaxMRSize < 1<<20 || attr.MaxQPRdAtom < 1 {
			t.Errorf("%+v: %+v, %v", d, attr, err)
		}
		if ctx.Name() != d.Name || attr.NodeGUID != d.GUID {
			t.Errorf("%s is not %+v", ctx.Name(), d)
		}
		for port := 1; port <= attr.Ports; port++ {
			testPort(t, ctx, port)
		}
		if _, err := ctx.Port(attr.Ports + 1); err == nil {
			t.Errorf("%s has a port too many", d.Name)
		}
		if _, err := ctx.Port(0); !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
		t.Logf("%+v: %+v", d, attr)
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	}
}

func testPort(t *testing.T, ctx verbs.Context, port int) {
	t.Helper()
	p, err := ctx.Port(port)
	if err != nil {
		t.Fatal(err)
	}
	mtus := []int{256, 512, 1024, 2048, 4096}
	if !slices.Contains(mtus, p.MTU) || !slices.Contains(mtus, p.MaxMTU) || p.MTU > p.MaxMTU || p.GIDs < 1 || p.Speed <= 0 {
		t.Errorf("port %d: %+v", port, p)
	}
	gids, err := ctx.GIDs(port)
	if err != nil {
		t.Fatal(err)
	}
	if p.State == verbs.PortActive && len(gids) == 0 {
		t.Errorf("port %d is %v and has no GID", port, p.State)
	}
	seen := make(map[int]bool)
	for _, g := range gids {
		if g.Index < 0 || g.Index >= p.GIDs || seen[g.Index] || g.GID == [16]byte{} || g.Type > verbs.GIDRoCEv2 {
			t.Errorf("GID %+v", g)
		}
		seen[g.Index] = true
	}
	if slow := verbs.GIDsOneByOne(t, ctx, port); !slices.Equal(slow, gids) && len(slow) > 0 && slow[0].NetDev != "" {
		t.Errorf("one by one they are %+v, not %+v", slow, gids)
	}
	t.Logf("port %d: %+v, %v, %v, GIDs %+v", port, p, p.State, p.LinkLayer, gids)
}

// TestNoSuchDevice: the error names it and those that are there.
func TestNoSuchDevice(t *testing.T) {
	if err := verbs.Load(); err != nil {
		if !errors.Is(err, errors.ErrUnsupported) || required("verbs") {
			t.Error(err)
		}
		t.Skip(err)
	}
	_, err := verbs.Open("mlx5_77")
	if !errors.Is(err, syscall.ENODEV) || !strings.HasPrefix(err.Error(), `open device "mlx5_77", of `) {
		t.Fatal(err)
	}
	devices, err2 := verbs.Devices()
	if err2 != nil {
		t.Fatal(err2)
	}
	for _, d := range devices {
		if !strings.Contains(err.Error(), d.Name) {
			t.Errorf("%v: it does not name %s", err, d.Name)
		}
	}
	if len(devices) == 0 && !strings.Contains(err.Error(), "no RDMA device") {
		t.Error(err)
	}
}
