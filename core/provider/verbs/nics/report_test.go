// SPDX-License-Identifier: MIT

package nics

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"mori/core/topology"
	"mori/core/topology/topologytest"
	"mori/native/verbs"
)

// sightOf is a host of topologytest on which all is well: the library knows the devices as sysfs
// does, and each Ethernet port has an address.
func sightOf(t *testing.T, name string) (*sight, fstest.MapFS) {
	t.Helper()
	tree := topologytest.Tree(t, name)
	tree["proc/sys/kernel/osrelease"] = &fstest.MapFile{Data: []byte("6.8.0-45-generic\n")}
	tree["sys/module/nvidia_peermem/initstate"] = &fstest.MapFile{}
	s := &sight{host: topology.Scan(tree), root: tree, access: func(string) error { return nil }, locked: memlock{free: true}}
	for i, p := range s.host.RDMA {
		if i == 0 || s.host.RDMA[i-1].Device != p.Device {
			s.devices = append(s.devices, seenDevice{name: p.Device, node: nodeType(p.Node), attr: verbs.DeviceAttr{FirmwareVersion: "28.40", MaxQP: 1 << 17, MaxMRSize: 1 << 40}})
		}
		d := &s.devices[len(s.devices)-1]
		d.ports = append(d.ports, seenPortOf(p))
	}
	return s, tree
}

func nodeType(word string) verbs.NodeType {
	if word == "RNIC" {
		return verbs.NodeRNIC
	}
	return verbs.NodeCA
}

func seenPortOf(p topology.RDMA) seenPort {
	seen := seenPort{number: p.Port, attr: verbs.PortAttr{State: verbs.PortDown, LinkLayer: verbs.LinkInfiniBand, MTU: 4096, Speed: p.Gbps}}
	if p.Up() {
		seen.attr.State = verbs.PortActive
	}
	if p.Link == "Ethernet" {
		seen.attr.LinkLayer = verbs.LinkEthernet
		seen.attr.MTU = 1024
		seen.gids = gids(p.NetDev, "fe80::1", "::ffff:198.18.0.10")
	}
	seen.taken, seen.noGID = ChooseGID(seen.gids, -1)
	return seen
}

func gids(dev string, addrs ...string) []verbs.GIDEntry {
	var all []verbs.GIDEntry
	for i, a := range addrs {
		all = append(all, verbs.GIDEntry{Index: i, GID: netip.MustParseAddr(a).As16(), Type: verbs.GIDRoCEv2, NetDev: dev})
	}
	return all
}

func TestReportOnGoodHosts(t *testing.T) {
	for name, want := range map[string]struct {
		used, unused, near int
		gid                string
	}{
		"dgx-h100":    {8, 4, 10, "1: 198.18.0.10"},
		"mi300x":      {8, 2, 10, "1: 198.18.0.10"},
		"bonded-roce": {2, 1, 6, "1: 198.18.0.10"},
		"soft-roce":   {2, 0, 1, "1: 198.18.0.10"},
		"one-nic":     {1, 1, 6, ""},
	} {
		s, _ := sightOf(t, name)
		v := s.report()
		if !v.Library.OK || !v.MemLock.OK || len(v.Problems) != 0 {
			t.Errorf("%s: %+v %+v %+v", name, v.Library, v.MemLock, v.Problems)
		}
		used := slices.IndexFunc(v.Ports, func(r PortRow) bool { return r.Unused != "" })
		if used < 0 {
			used = len(v.Ports)
		}
		if used != want.used || len(v.Ports)-used != want.unused || len(v.Near) != want.near || len(v.Devices) != len(s.devices) {
			t.Errorf("%s: %d used, %d in all, %d memories, %d devices", name, used, len(v.Ports), len(v.Near), len(v.Devices))
		}
		for _, r := range v.Ports {
			if (r.Index == nil) == (r.Unused == "") || r.Link == "Ethernet" && r.Unused == "" && r.GID != want.gid {
				t.Errorf("%s: %+v", name, r)
			}
		}
		for _, n := range v.Near {
			if n.Takes != n.Distances[0].NIC || n.Why == "" || len(n.Distances) != used {
				t.Errorf("%s: %+v", name, n)
			}
		}
		for i, g := range v.GIDs {
			if g.Taken != (g.Index == 1) || g.Type != "RoCE v2" || g.GID != []string{"fe80::1", "198.18.0.10"}[i%2] {
				t.Errorf("%s: %+v", name, g)
			}
		}
	}
}

// TestDoctorVerbsProblems: each thing that is missing is said, with the remedy, and a host that is
// well but for that says nothing else.
func TestReportProblems(t *testing.T) {
	errno := func(e syscall.Errno) error { return fmt.Errorf("open device %q: %w", "rxe0", e) }
	missing := fmt.Errorf("load libibverbs: libibverbs.so.1: no such file: %w", errors.ErrUnsupported)
	for _, c := range []struct {
		what, host   string
		harm         func(s *sight, tree fstest.MapFS)
		says, remedy string
	}{
		{"no library", "soft-roce", func(s *sight, _ fstest.MapFS) { s.library, s.devices = missing, nil }, "libibverbs.so.1: no such file", "libibverbs1"},
		{"cards without their module", "cards-without-rdma", nil, "cards of mlx5_core, but the RDMA module mlx5_ib", "modprobe mlx5_ib"},
		{"no device", "laptop", nil, "no RDMA device", "rdma_rxe"},
		{"no uverbs", "soft-roce", func(_ *sight, tree fstest.MapFS) {
			maps.DeleteFunc(tree, func(name string, _ *fstest.MapFile) bool {
				return strings.Contains(name, "/ib_uverbs/") || strings.Contains(name, "/infiniband_verbs/")
			})
		}, "ib_uverbs", "modprobe ib_uverbs"},
		{"a container without the files", "soft-roce", func(s *sight, _ fstest.MapFS) {
			s.access = func(string) error { return fs.ErrNotExist }
			s.devices = nil // libibverbs shows none without their files
		},
			"device files of the RDMA devices: /dev/infiniband/uverbs0, /dev/infiniband/uverbs1", "--device=/dev/infiniband"},
		{"no right to the files", "soft-roce", func(s *sight, _ fstest.MapFS) {
			s.access = func(string) error { return syscall.EACCES }
			s.devices = []seenDevice{{name: "rxe0", err: errno(syscall.ENOENT)}, {name: "rxe1", err: errno(syscall.ENOENT)}}
		}, "may not read and write /dev/infiniband/uverbs0, /dev", "chmod"},
		{"a device whose file the library does not open", "soft-roce", func(s *sight, _ fstest.MapFS) { s.devices[0] = seenDevice{name: "rxe0", err: errno(syscall.ENOENT)} },
			"no such file", "--device=/dev/infiniband"},
		{"a device that may not be opened", "soft-roce", func(s *sight, _ fstest.MapFS) { s.devices[0] = seenDevice{name: "rxe0", err: errno(syscall.EACCES)} },
			"permission denied", "--cap-add=IPC_LOCK"},
		{"a device that is gone", "soft-roce", func(s *sight, _ fstest.MapFS) { s.devices[0] = seenDevice{name: "rxe0", err: errno(syscall.ENODEV)} },
			"no such device", "dmesg"},
		{"a device that wants more memory", "soft-roce", func(s *sight, _ fstest.MapFS) { s.devices[0] = seenDevice{name: "rxe0", err: errno(syscall.ENOMEM)} },
			"cannot allocate", "ulimit -l"},
		{"a device without a driver in the library", "soft-roce", func(s *sight, _ fstest.MapFS) { s.devices = s.devices[:1] }, "kernel has: rxe1", "ibverbs-providers"},
		{"a port without a subnet manager", "one-nic", func(s *sight, _ fstest.MapFS) { s.devices[0].ports[0].attr.State = verbs.PortInit }, "mlx4_0 is INIT", "opensm"},
		{"all ports down", "one-nic", func(s *sight, _ fstest.MapFS) { s.devices[0].ports = s.devices[0].ports[:1] }, "port mlx4_0 is down", "cable"},
		{"no address", "soft-roce", func(s *sight, _ fstest.MapFS) { setGIDs(s, nil) }, "port rxe1: the port has no GID", "ip addr add"},
		{"a link-local address", "soft-roce", func(s *sight, _ fstest.MapFS) { setGIDs(s, gids("eth1", "fe80::1")) }, "port rxe1 has a link-local address only", "give eth1 an IPv4"},
		{"RoCE v1", "soft-roce", func(s *sight, _ fstest.MapFS) {
			all := gids("eth1", "::ffff:10.0.0.1")
			all[0].Type = verbs.GIDRoCEv1
			setGIDs(s, all)
		}, "no RoCE v2 address, and 10.0.0.1 of type RoCE v1", "give eth1"},
		{"old firmware", "mi300x", func(s *sight, _ fstest.MapFS) {
			s.devices[2].attr = verbs.DeviceAttr{VendorID: 0x14e4, VendorPartID: 0x1760, FirmwareVersion: "235.2.79.0"}
			s.devices[3].attr = verbs.DeviceAttr{VendorID: 0x14e4, VendorPartID: 0x1760, FirmwareVersion: "237.1.137.0"}
			s.devices[4].attr = verbs.DeviceAttr{VendorID: 0x14e4, VendorPartID: 0x16d7, FirmwareVersion: "220.0.0.0"}
		}, "firmware 235.2.79.0 of rdma0 is older than 235.2.86", "update"},
		{"little locked memory", "soft-roce", func(s *sight, _ fstest.MapFS) { s.locked = memlock{bytes: 8 << 20} }, "8192 KiB may be locked", "ulimit -l unlimited"},
		{"no way to GPUs", "dgx-h100", func(_ *sight, tree fstest.MapFS) { delete(tree, "sys/module/nvidia_peermem/initstate") }, "no peer memory module", "nvidia-peermem"},
		{"an old kernel", "dgx-h100", func(_ *sight, tree fstest.MapFS) {
			delete(tree, "sys/module/nvidia_peermem/initstate")
			tree["proc/sys/kernel/osrelease"].Data = []byte("5.4.0-100")
		}, "Linux 5.4.0-100 has no dma-buf", "open kernel module"},
	} {
		s, tree := sightOf(t, c.host)
		if c.harm != nil {
			c.harm(s, tree)
		}
		got := s.report().Problems
		if len(got) != 1 || !strings.Contains(got[0].What, c.says) || !strings.Contains(got[0].Remedy, c.remedy) || strings.Contains(got[0].What+got[0].Remedy, "\n") {
			t.Errorf("%s: %+v, want %q and %q", c.what, got, c.says, c.remedy)
		}
	}
}

// setGIDs gives the last port other addresses.
func setGIDs(s *sight, all []verbs.GIDEntry) {
	p := &s.devices[len(s.devices)-1].ports[0]
	p.gids = all
	p.taken, p.noGID = ChooseGID(all, -1)
}

func TestReportSettings(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"MORI_RDMA_DEVICES", "rxe7", "names rxe7, but this host has rxe0, rxe1"},
		{"MORI_IO_RDMA_NIC_IDX", "first", `MORI_IO_RDMA_NIC_IDX="first"`},
		{"MORI_IB_GID_INDEX", "-3", `MORI_IB_GID_INDEX="-3"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			s, _ := sightOf(t, "soft-roce")
			v := s.report()
			if got := v.Problems; len(got) != 1 || !strings.Contains(got[0].What, c.says) || !strings.Contains(got[0].Remedy, "mori env") || len(v.Ports) != 2 {
				t.Errorf("%+v, want %q", v, c.says)
			}
		})
	}
	t.Setenv("MORI_RDMA_DEVICES", "^rxe0")
	s, _ := sightOf(t, "soft-roce")
	v := s.report()
	if len(v.Problems) != 0 || v.Ports[1].NIC != "rxe0" || !strings.Contains(v.Ports[1].Unused, "MORI_RDMA_DEVICES") || v.Near[0].Takes != "rxe1" {
		t.Errorf("%+v", v)
	}
}

// TestDoctorVerbsInAContainer: who was given one device of two has no problem, and sees why the
// other one is not used.
func TestReportInAContainer(t *testing.T) {
	s, _ := sightOf(t, "soft-roce")
	s.devices = s.devices[1:]
	s.access = func(file string) error {
		if file == "/dev/infiniband/uverbs0" {
			return fs.ErrNotExist
		}
		return nil
	}
	v := s.report()
	if len(v.Problems) != 0 || v.Ports[0].NIC != "rxe1" || v.Ports[0].Unused != "" || v.Ports[1].Unused != "libibverbs does not list it" {
		t.Errorf("%+v", v)
	}
}

// TestDoctorVerbsOfInfiniBand: a port without addresses is used, and one with some and a wrong wish
// is not.
func TestReportOfInfiniBand(t *testing.T) {
	s, _ := sightOf(t, "one-nic")
	p := &s.devices[0].ports[1]
	p.gids = gids("", "fe80::1")
	p.taken, p.noGID = ChooseGID(p.gids, 4)
	v := s.report()
	if len(v.Problems) != 1 || !strings.Contains(v.Problems[0].What, "mlx4_0:2: GID index 4") || !strings.Contains(v.Ports[0].Unused+v.Ports[1].Unused, "GID index 4") {
		t.Errorf("%+v", v)
	}
}

func TestReportKeepsWhatCannotBeUsed(t *testing.T) {
	s, _ := sightOf(t, "mi300x")
	s.devices[5] = seenDevice{name: "rdma3", err: syscall.EACCES}
	s.devices = slices.Delete(s.devices, 6, 7) // rdma4
	v := s.report()
	unused := map[string]string{}
	for _, r := range v.Ports {
		unused[r.NIC] = r.Unused
	}
	if len(v.Ports) != 10 || unused["rdma3"] != "permission denied" || unused["rdma4"] != "libibverbs does not list it" || unused["rdma5"] != "" {
		t.Errorf("%v", unused)
	}
	if v.Near[3].Takes == "rdma3" || v.Near[4].Takes == "rdma4" {
		t.Errorf("%+v", v.Near)
	}
	s, _ = sightOf(t, "mi300x")
	s.library, s.devices = errors.ErrUnsupported, nil
	v = s.report()
	if v.Library.OK || len(v.Ports) != 10 || v.Ports[0].Unused != "libibverbs cannot be used" || v.Ports[0].Index != nil || len(v.Near) != 10 {
		t.Errorf("%+v", v)
	}
}

// TestReportHere: on the machine of the test, whatever it has.
func TestReportHere(t *testing.T) {
	v := Look(topology.Scan(os.DirFS("/")))
	if v.Library.OK != (verbs.Load() == nil) || v.Library.Reason == "" || v.MemLock.Reason == "" || v.GPUDirect.Reason == "" {
		t.Errorf("%+v", v)
	}
	devices, _ := verbs.Devices()
	if len(devices) != len(v.Devices) {
		t.Errorf("%d devices, and the library has %d", len(v.Devices), len(devices))
	}
	for _, p := range v.Problems {
		if p.What == "" || p.Remedy == "" {
			t.Errorf("%+v", p)
		}
	}
}
