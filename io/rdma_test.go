// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mori/core/config"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// overRDMA sets up the environment in which engines of one host communicate through RDMA devices,
// as between hosts. more has further variables.
func overRDMA(t *testing.T, more ...string) {
	t.Helper()
	verbstest.Need(t)
	onlyRDMA(t, more...)
}

// onlyRDMA sets up the environment of overRDMA, but does not require a working device.
func onlyRDMA(t *testing.T, more ...string) {
	t.Helper()
	env := map[string]string{config.FabricProvider: "verbs,tcp"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	setEnv(t, env)
}

// runsOn checks that a session's path starts with want.
func runsOn(t *testing.T, s *Session, want string) {
	t.Helper()
	if d := s.Describe(); !strings.HasPrefix(d.Path, want) {
		t.Fatalf("path %s, want %s: %q", d.Path, want, d.Reasons)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestRDMAMovesBytes checks writes and reads, of one piece and of many, and that the target is
// notified.
func TestRDMAMovesBytes(t *testing.T) {
	overRDMA(t)
	const size, piece, count = 2 << 20, 24 << 10, 64
	a, b, s := pair(t, size, BackendRDMA, nil)
	runsOn(t, s, "verbs/rdma")
	fill(a.mem, 1)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{size}, 7))
	if !bytes.Equal(a.mem, b.mem) {
		t.Fatal("the write brought other bytes")
	}
	eventually(t, "the target hears of the write", func() bool { return b.PopInbound("a", 7) })
	fill(b.mem, 2)
	var from, to, sizes []uint64
	for i := range uint64(count) {
		from, to, sizes = append(from, i*(piece+512)), append(to, (count-1-i)*(piece+256)), append(sizes, piece)
	}
	succeed(t, s.Read(from, to, sizes, 8))
	for i := range from {
		if !bytes.Equal(a.mem[from[i]:][:piece], b.mem[to[i]:][:piece]) {
			t.Fatalf("piece %d has other bytes", i)
		}
	}
	eventually(t, "the target hears of the read", func() bool { return b.PopInbound("a", 8) })
	if b.PopInbound("a", 9) {
		t.Error("a transfer that was not made is told")
	}
}

// TestRDMAConfigReachesTheDevices checks that each field and variable changes what devices are
// asked for.
func TestRDMAConfigReachesTheDevices(t *testing.T) {
	overRDMA(t)
	verbstest.NeedEmulated(t)
	const size = 1 << 20
	const messages = 16 + 32 + 1 // entries of the queue pair that carries messages
	for _, c := range []struct {
		what string
		set  func(*BackendConfig)
		env  []string
		want map[string]uint64
	}{
		{"nothing", nil, nil, map[string]uint64{
			"max_send_wr": 1024, "max_send_sge": 4, "max_recv_wr": 1024, "max_inline_data": 64, "cqe": 1024 + 1024 + 1 + messages, "sl": 0, "traffic_class": 0,
			"sgid_index": 1, "path_mtu": 1024,
		}},
		{"max_send_wr", func(c *BackendConfig) { c.MaxSendWR = 100 }, nil, map[string]uint64{"max_send_wr": 100}},
		{"its variable", func(c *BackendConfig) { c.MaxSendWR = 100 }, []string{config.IOQPMaxSendWR, "90"}, map[string]uint64{"max_send_wr": 90}},
		{"max_msg_sge", func(c *BackendConfig) { c.MaxMsgSGE = 2 }, nil, map[string]uint64{"max_send_sge": 2}},
		{"its variable", nil, []string{config.IOQPMaxMsgSGE, "3"}, map[string]uint64{"max_send_sge": 3}},
		{"its other name", nil, []string{config.IOQPMaxSGE, "5"}, map[string]uint64{"max_send_sge": 5}},
		{"max_cqe_num", func(c *BackendConfig) { c.MaxCQENum = 101 }, nil, map[string]uint64{"cqe": 101 + messages, "max_recv_wr": 50, "max_send_wr": 50}},
		{"its variable", nil, []string{config.IOQPMaxCQE, "16384"}, map[string]uint64{"cqe": 16384, "max_send_wr": 1024}},
		{"notif_per_qp", func(c *BackendConfig) { c.NotifPerQP = 33 }, nil, map[string]uint64{"max_recv_wr": 33}},
		{"its variable", nil, []string{config.IOQPMaxRecvWR, "44"}, map[string]uint64{"max_recv_wr": 44}},
		{"inline", nil, []string{config.IOQPMaxInlineData, "200"}, map[string]uint64{"max_inline_data": 200}},
		{"no inline", nil, []string{config.IOQPMaxInlineData, "0"}, map[string]uint64{"max_inline_data": 0}},
		{"SL and TC of all", nil, []string{config.RDMASL, "3", config.RDMATC, "104"}, map[string]uint64{"sl": 3, "traffic_class": 104}},
		{"of io", nil, []string{config.RDMASL, "3", config.IOSL, "5", config.RDMATC, "104", config.IOTC, "96"}, map[string]uint64{"sl": 5, "traffic_class": 96}},
		{"no TC", nil, []string{config.IOTCDisable, "1", config.RDMATC, "104", config.IOTC, "96"}, map[string]uint64{"traffic_class": 0}},
		{"malformed", nil, []string{config.IOSL, "16", config.IOTC, "x", config.IBPathMTU, "1000", config.IBGIDIndex, "-2"},
			map[string]uint64{"sl": 0, "traffic_class": 0, "path_mtu": 1024, "sgid_index": 1}},
		{"GID", nil, []string{config.IBGIDIndex, "2"}, map[string]uint64{"sgid_index": 2}},
		{"MTU", nil, []string{config.IBPathMTU, "512"}, map[string]uint64{"path_mtu": 512}},
		{"relaxed ordering", nil, []string{config.IBRelaxedOrdering, "1"}, map[string]uint64{"access": 1<<20 | 7}},
		{"chunk_bytes", func(c *BackendConfig) { c.EnableChunking, c.ChunkBytes = true, 4096 }, nil, map[string]uint64{"length": 4096}},
		{"its variables", nil, []string{config.IOChunking, "1", config.IOChunkBytes, "8192"}, map[string]uint64{"length": 8192}},
		{"post_batch_size", func(c *BackendConfig) { c.PostBatchSize = 3 }, nil, map[string]uint64{"posted": 3}},
		{"its variable", nil, []string{config.IOPostBatchSize, "2"}, map[string]uint64{"posted": 2}},
	} {
		t.Run(c.what, func(t *testing.T) {
			overRDMA(t, c.env...)
			cfg := DefaultBackendConfig()
			if c.set != nil {
				c.set(cfg)
			}
			for name := range c.want {
				verbstest.Most(t, name)
			}
			a, b, s := pair(t, size, BackendRDMA, cfg)
			scattered(t, a, b, s)
			for name, want := range c.want {
				if got := verbstest.Most(t, name); got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			}
		})
	}
}

// scattered writes many pieces and checks them.
func scattered(t *testing.T, a, b *side, s *Session) {
	t.Helper()
	runsOn(t, s, "verbs/rdma")
	fill(a.mem, 3)
	const piece = 16 << 10
	var from, to, sizes []uint64
	for i := range uint64(len(a.mem) / piece / 2) {
		from, to, sizes = append(from, 2*i*piece), append(to, 2*i*piece), append(sizes, piece)
	}
	succeed(t, s.Write(from, to, sizes, 1))
	for i := range from {
		if !bytes.Equal(a.mem[from[i]:][:piece], b.mem[to[i]:][:piece]) {
			t.Fatalf("piece %d has other bytes", i)
		}
	}
}

// TestRDMASpreadsTransfers checks that transfers are spread over queue pairs and devices.
func TestRDMASpreadsTransfers(t *testing.T) {
	overRDMA(t)
	verbstest.NeedEmulated(t)
	verbstest.Need(t, 2)
	const size = 4 << 20
	cfg := DefaultBackendConfig()
	cfg.NumNICsPerTransfer, cfg.QPPerTransfer = 2, 3
	before := [2]uint64{verbstest.Bytes(t, 0), verbstest.Bytes(t, 1)}
	a, b, s := pair(t, size, BackendRDMA, cfg)
	fill(a.mem, 4)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{size}, 1))
	if !bytes.Equal(a.mem, b.mem) {
		t.Fatal("other bytes")
	}
	for i, was := range before {
		if moved := verbstest.Bytes(t, i) - was; moved < size/4 || moved > size*3/4 {
			t.Errorf("device %d moved %d bytes of %d", i, moved, size)
		}
	}
	if d := strings.Join(s.Describe().Reasons, "|"); !strings.Contains(d, "emu0:1") || !strings.Contains(d, "emu1:1") {
		t.Errorf("not both devices are told: %s", d)
	}
}

// TestRDMADevicesAreChosen checks the choice by name, by exclusion and by index.
func TestRDMADevicesAreChosen(t *testing.T) {
	for _, c := range []struct {
		env  []string
		on   string
		says string // the reason if no device can be used
	}{
		{[]string{config.RDMADevices, "emu1"}, "emu1:1", ""},
		{[]string{config.RDMADevices, "emu1,emu0"}, "emu1:1", ""},
		{[]string{config.RDMADevices, "^emu0"}, "emu1:1", ""},
		{[]string{config.IORDMANICIdx, "1"}, "emu1:1 (MORI_IO_RDMA_NIC_IDX=1)", ""},
		{[]string{config.DisableTopo, "1"}, "emu0:1 (MORI_DISABLE_TOPO is set", ""},
		{[]string{config.RDMADevices, "emu7"}, "", "MORI_RDMA_DEVICES names emu7, but this host has emu0, emu1"},
		{[]string{config.RDMADevices, "^emu0,emu1"}, "", "no active RDMA device on this host"},
		{[]string{config.IORDMANICIdx, "5"}, "", "MORI_IO_RDMA_NIC_IDX=5 is not a usable NIC"},
		{[]string{config.IBGIDIndex, "9"}, "", "GID index 9"},
	} {
		t.Run(strings.Join(c.env, "="), func(t *testing.T) {
			verbstest.NeedEmulated(t)
			overRDMA(t, c.env...)
			a, b, s := pair(t, 1<<20, BackendRDMA, nil)
			if c.on == "" {
				runsOn(t, s, "tcp")
				if d := strings.Join(s.Describe().Reasons, "|"); !strings.Contains(d, c.says) {
					t.Errorf("it says %s, want %s", d, c.says)
				}
				refusedWhereRequired(t, c.env, c.says)
				return
			}
			scattered(t, a, b, s)
			if d := strings.Join(s.Describe().Reasons, "|"); !strings.Contains(d, "verbs/rdma: "+c.on) {
				t.Errorf("it says %s, want %s", d, c.on)
			}
		})
	}
}

// refusedWhereRequired checks that with MORI_REQUIRE_RDMA a problem is an error, not only a reason.
func refusedWhereRequired(t *testing.T, env []string, says string) {
	t.Helper()
	onlyRDMA(t, append([]string{config.RequireRDMA, "1"}, env...)...)
	err := newEngineWith(t, "strict").CreateBackend(BackendRDMA, nil)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), says) {
		t.Errorf("required: %v", err)
	}
}

// TestRDMAIsMissing checks that missing devices are reported, and are an error if they are
// required.
func TestRDMAIsMissing(t *testing.T) {
	verbstest.NeedEmulated(t)
	for what, c := range map[string]struct {
		spoil func(*testing.T)
		env   []string
		says  string
	}{
		"no device":  {func(t *testing.T) { verbstest.Count(t, 0) }, nil, "no active RDMA device on this host"},
		"ports down": {func(t *testing.T) { verbstest.PortDown(t, 0); verbstest.PortDown(t, 1) }, nil, "port is down"},
		"refused":    {func(t *testing.T) { verbstest.Fail(t, "ibv_open_device=1") }, nil, "operation not permitted"},
		"excluded":   {func(*testing.T) {}, []string{config.FabricProvider, "tcp"}, "verbs is not available"},
	} {
		t.Run(what, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			c.spoil(t)
			onlyRDMA(t, c.env...)
			_, _, s := pair(t, 4096, BackendRDMA, nil)
			runsOn(t, s, "tcp")
			if d := strings.Join(s.Describe().Reasons, "|"); !strings.Contains(d, c.says) {
				t.Errorf("it says %s, want %s", d, c.says)
			}
			refusedWhereRequired(t, c.env, c.says)
		})
	}
}

// noLibraryEnv makes this program run as if libibverbs could not be loaded.
const noLibraryEnv = "MORI_TEST_WITHOUT_LIBIBVERBS"

// TestRDMAWithoutLibrary checks that without libibverbs transfers use TCP, and that the reason is
// reported.
func TestRDMAWithoutLibrary(t *testing.T) {
	if os.Getenv(noLibraryEnv) == "" {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "libibverbs.so.1"), []byte("no library"), 0o600); err != nil {
			t.Fatal(err)
		}
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRDMAWithoutLibrary$", "-test.v", "-test.timeout=60s")
		// Keep the rest of the path: it may be needed to find a GPU's driver.
		path := strings.TrimSuffix(dir+":"+os.Getenv("LD_LIBRARY_PATH"), ":")
		again.Env = append(os.Environ(), noLibraryEnv+"=1", "LD_LIBRARY_PATH="+path)
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	onlyRDMA(t)
	_, _, s := pair(t, 4096, BackendRDMA, nil)
	runsOn(t, s, "tcp")
	once(t, s, 4096)
	says := "libibverbs.so.1" // if the kernel has devices; without any, that is reported instead
	if devices, _ := filepath.Glob("/sys/class/infiniband/*"); len(devices) == 0 {
		says = "no active RDMA device on this host"
	}
	if d := strings.Join(s.Describe().Reasons, "|"); !strings.Contains(d, says) {
		t.Errorf("it says %s, want %s", d, says)
	}
	refusedWhereRequired(t, nil, says)
}

// TestRDMAPortGoesDown checks a port that goes down in mid-transfer: nothing is lost, TCP takes
// over, and RDMA returns with the port.
func TestRDMAPortGoesDown(t *testing.T) {
	overRDMA(t)
	verbstest.NeedEmulated(t)
	verbstest.Count(t, 1)
	const size = 4 << 20
	a, b, s := pair(t, size, BackendRDMA, nil)
	runsOn(t, s, "verbs/rdma")
	fill(a.mem, 5)
	release := verbstest.Hold(t, 0)
	st := s.Write([]uint64{0}, []uint64{0}, []uint64{size}, 1)
	up := verbstest.PortDown(t, 0)
	release()
	succeed(t, st)
	if !bytes.Equal(a.mem, b.mem) {
		t.Fatal("bytes were lost with the port")
	}
	eventually(t, "the target hears of the transfer", func() bool { return b.PopInbound("a", 1) })
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 2))
	runsOn(t, s, "tcp")
	if d := fmt.Sprint(s.Describe().Reasons); !strings.Contains(d, "verbs: broke") {
		t.Errorf("what broke is not told: %s", d)
	}
	up()
	uid := uint64(3)
	eventually(t, "transfers go by RDMA again", func() bool {
		fill(a.mem[:4096], uid)
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, uid))
		if uid++; !bytes.Equal(a.mem[:4096], b.mem[:4096]) {
			t.Fatal("other bytes")
		}
		return s.Describe().Path == "verbs/rdma"
	})
}

// TestRDMAIsLostAndComesBack checks that NIC failures lose no pending transfer. Another path takes
// them over, and later transfers use RDMA again.
func TestRDMAIsLostAndComesBack(t *testing.T) {
	for what, harm := range map[string]func(*testing.T) (undo func()){ // undo is nil if the failure is permanent
		"a queue pair fails": func(t *testing.T) func() {
			verbstest.FailNext(t, verbs.OpWrite, verbs.StatusRetryExceeded)
			return func() {}
		},
		"the device is removed": func(t *testing.T) func() {
			verbstest.Remove(t, 0)
			return nil // an engine opens devices once
		},
		"the port loses its addresses": func(t *testing.T) func() {
			undo := []func(){verbstest.DropGID(t, 0, 0), verbstest.DropGID(t, 0, 1), verbstest.DropGID(t, 0, 2)}
			return func() {
				for _, f := range undo {
					f()
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			overRDMA(t)
			verbstest.NeedEmulated(t)
			verbstest.Count(t, 1)
			const size, count = 1 << 20, 12
			a, b, s := pair(t, size*count, BackendRDMA, nil)
			runsOn(t, s, "verbs/rdma")
			fill(a.mem, 6)
			release := verbstest.Hold(t, 0)
			var all []*Status
			for i := range uint64(count) {
				all = append(all, s.Write([]uint64{i * size}, []uint64{i * size}, []uint64{size}, i))
			}
			path := s.plan.Load().path
			undo := harm(t)
			release()
			for _, st := range all {
				succeed(t, st)
			}
			if !bytes.Equal(a.mem, b.mem) {
				t.Fatal("bytes were lost")
			}
			for i := range uint64(count) {
				eventually(t, "the target hears of each transfer", func() bool { return b.PopInbound("a", i) })
			}
			if path.Err() == nil {
				t.Error("the path did not break")
			}
			if undo == nil {
				runsOn(t, s, "tcp")
				return
			}
			undo()
			uid := uint64(count)
			eventually(t, "transfers go by RDMA again", func() bool {
				fill(a.mem[:size], uid)
				succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{size}, uid))
				if uid++; !bytes.Equal(a.mem[:size], b.mem[:size]) {
					t.Fatal("other bytes")
				}
				return s.Describe().Path == "verbs/rdma"
			})
		})
	}
}

// TestRDMANextDevice checks that another device takes over when a device's port goes down.
func TestRDMANextDevice(t *testing.T) {
	overRDMA(t)
	verbstest.NeedEmulated(t)
	verbstest.Need(t, 2)
	const size = 1 << 20
	a, b, s := pair(t, size, BackendRDMA, nil)
	scattered(t, a, b, s)
	verbstest.PortDown(t, 0)
	eventually(t, "transfers go by the other device", func() bool {
		once(t, s, 64<<10)
		return strings.Contains(strings.Join(s.Describe().Reasons, "|"), "verbs/rdma: emu1:1")
	})
	before := verbstest.Bytes(t, 1)
	scattered(t, a, b, s)
	if verbstest.Bytes(t, 1) == before {
		t.Error("the other device moved nothing")
	}
}

func once(t *testing.T, s *Session, size uint64) {
	t.Helper()
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{size}, 99))
}

// TestRDMARailAffinity checks that with rail affinity the other side uses the device with the same
// index, so that failures of another device have no effect.
func TestRDMARailAffinity(t *testing.T) {
	for _, affinity := range []string{"1", "0"} {
		t.Run(affinity, func(t *testing.T) {
			overRDMA(t, config.IORailAffinity, affinity, config.IORDMANICIdx, "1")
			verbstest.NeedEmulated(t)
			verbstest.Need(t, 2)
			a := newSide(t, "a", 1<<20, BackendRDMA, nil)
			overRDMA(t, config.IORailAffinity, affinity)
			b := newSide(t, "b", 1<<20, BackendRDMA, nil)
			s := meet(t, a, b)
			scattered(t, a, b, s)
			verbstest.PortDown(t, 0)
			moved := false
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				once(t, s, 64<<10)
				moved = moved || s.Describe().Path != "verbs/rdma"
			}
			if moved == (affinity == "1") {
				t.Errorf("the connection ended with the port of the other device: %v", moved)
			}
		})
	}
}
