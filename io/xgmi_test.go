// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"mori/core/config"
	"mori/io/internal/control"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

// setEnv sets environment variables until the test ends.
func setEnv(t *testing.T, values map[string]string) {
	t.Helper()
	t.Cleanup(func() { config.SetLookup(nil) })
	config.SetLookup(func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	})
}

// TestXGMINeedsNoNetwork checks that engines of one host find each other without a port, that an
// engine reaches itself without registration, and that no notification is sent.
func TestXGMINeedsNoNetwork(t *testing.T) {
	all := gpus(t, 1)
	last := all[len(all)-1]
	from, to := onGPU(t, all[0], 64<<10), onGPU(t, last, 64<<10)
	a, b := newEngineWith(t, "a", BackendXGMI), newEngineWith(t, "b", BackendXGMI)
	if d := a.Desc(); d.Port != 0 || d.Host != "" || a.backends.Control().Port() != 0 {
		t.Errorf("it listens on a network: %+v", d)
	}
	if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	here, there, own := from.register(t, a), to.register(t, b), to.register(t, a)
	if here.IPCHandle == ([64]byte{}) || there.IPCHandle == ([64]byte{}) || there.DeviceBusID != last.BusID {
		t.Errorf("descriptors that no other process could use: %+v, %+v", here, there)
	}
	sub, err := a.RegisterMemory(from.addr+4096, 4096, 0, LocGPU)
	if err != nil || sub.IPCOffset != 4096 || sub.IPCHandle != here.IPCHandle {
		t.Errorf("a sub-region at %d: %v", sub.IPCOffset, err)
	}
	want := make([]byte, from.size)
	for round, remote := range []MemoryDesc{there, own} {
		fill(want, uint64(round))
		from.put(t, want)
		s, err := a.CreateSession(here, remote)
		if err != nil || s == nil {
			t.Fatalf("session %v, %v", s, err)
		}
		st := s.Write([]uint64{0}, []uint64{0}, []uint64{uint64(from.size)}, uint64(round))
		succeed(t, st)
		if !bytes.Equal(to.get(t), want) || st.Message() != "" {
			t.Errorf("round %d: other bytes, or the text %q", round, st.Message())
		}
		if d := s.Describe(); d.Backend != "XGMI" || d.Memory != "gpu" || d.Link == "" || !strings.HasPrefix(d.Path, "p2p") {
			t.Errorf("round %d: %+v", round, d)
		}
	}
	if a.PopInbound("a", 1) || b.PopInbound("a", 0) {
		t.Error("an arrival was told")
	}
}

// TestXGMIFailuresSaySo checks the prefix and the code of XGMI failures.
func TestXGMIFailuresSaySo(t *testing.T) {
	all := gpus(t, 1)
	m := onGPU(t, all[0], 8192)
	a, b := newEngineWith(t, "a", BackendXGMI), newEngineWith(t, "b", BackendXGMI)
	here, there := m.register(t, a), m.register(t, b)
	if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	s, err := a.CreateSession(here, there)
	if err != nil || s == nil {
		t.Fatalf("session %v, %v", s, err)
	}
	if st := s.Write([]uint64{8000}, []uint64{0}, []uint64{193}, 1); st.Code() != CodeErrInvalidArgs || !strings.HasPrefix(st.Message(), "XGMI: ") {
		t.Errorf("beyond the region: %v %s", st.Code(), st.Message())
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	st := s.Write([]uint64{0}, []uint64{4096}, []uint64{4096}, 2)
	if c := st.Wait(deadline(t)); c != CodeErrGPUOp && c != CodeErrBadState || !strings.HasPrefix(st.Message(), "XGMI: ") || !strings.Contains(st.Message(), `engine "b" is gone`) {
		t.Errorf("to an engine that is gone: %v %s", c, st.Message())
	}
	if err := a.RemoveBackend(BackendXGMI); err != nil {
		t.Fatal(err)
	}
	if st := s.Write([]uint64{0}, []uint64{0}, []uint64{1}, 3); st.Code() != CodeErrBadState {
		t.Errorf("without its backend: %v %s", st.Code(), st.Message())
	}
}

// TestTheBackendOfAPair checks that XGMI serves pairs of GPU memory of one host, and other backends
// all other pairs.
func TestTheBackendOfAPair(t *testing.T) {
	all := gpus(t, 1)
	last := all[len(all)-1]
	g, h := onGPU(t, all[0], 4096), onHost(t, 4096)
	a, b := newEngineWith(t, "a", BackendRDMA, BackendTCP, BackendXGMI), newEngineWith(t, "b", BackendRDMA, BackendTCP, BackendXGMI)
	only := newEngineWith(t, "c", BackendXGMI)
	far := b.Desc()
	far.NodeID = "elsewhere"
	descs := map[string]MemoryDesc{"gpu": g.register(t, a), "host": h.register(t, a)}
	at := map[*Engine]map[string]MemoryDesc{b: {"gpu": onGPU(t, last, 4096).register(t, b), "host": onHost(t, 4096).register(t, b)}, only: {"gpu": onGPU(t, last, 4096).register(t, only)}}
	noBus := at[b]["gpu"]
	noBus.DeviceBusID = ""
	hidden := at[b]["gpu"]
	hidden.DeviceBusID, hidden.IPCHandle = "ffff:00:00.0", [64]byte{}
	exported := at[b]["gpu"]
	exported.DeviceBusID = "ffff:00:00.0"
	for _, c := range []struct {
		name          string
		peer          EngineDesc
		local, remote MemoryDesc
		want, why     string
	}{
		{"two GPUs", b.Desc(), descs["gpu"], at[b]["gpu"], "XGMI", ""},
		{"a GPU and the host", b.Desc(), descs["gpu"], at[b]["host"], "RDMA", "not both regions are GPU memory"},
		{"the host and a GPU", b.Desc(), descs["host"], at[b]["gpu"], "RDMA", "not both regions are GPU memory"},
		{"the host", b.Desc(), descs["host"], at[b]["host"], "RDMA", "not both"},
		{"another host", far, descs["gpu"], at[b]["gpu"], "RDMA", "another host"},
		{"a GPU that nobody names", b.Desc(), descs["gpu"], noBus, "RDMA", "no bus id"},
		{"a GPU that is hidden", b.Desc(), descs["gpu"], hidden, "RDMA", "no IPC handle"},
		{"a GPU that is hidden and exported", b.Desc(), descs["gpu"], exported, "XGMI", ""},
		{"an engine without a network", only.Desc(), descs["gpu"], at[only]["gpu"], "XGMI", ""},
	} {
		if err := a.RegisterRemoteEngine(c.peer); err != nil {
			t.Fatal(err)
		}
		r := a.regions.Of(c.local, "a")
		_, facts := a.peerOf(c.remote.EngineKey)
		way, skipped, err := a.backends.Choose(r, &c.remote, facts)
		if err != nil || way.Backend.Kind.String() != c.want || !strings.Contains(strings.Join(skipped, "; "), c.why) {
			t.Errorf("%s: %v, %v", c.name, skipped, err)
		}
	}
}

// TestXGMIKeepsStrangersOut checks that the control plane also requires proofs on the local socket.
func TestXGMIKeepsStrangersOut(t *testing.T) {
	all := gpus(t, 1)
	m := onGPU(t, all[0], 4096)
	open := func(key, secret string) (*Engine, MemoryDesc) {
		e, err := NewEngine(key, EngineConfig{AuthSecret: secret})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, e.Close()) })
		if err := e.CreateBackend(BackendXGMI, nil); err != nil {
			t.Fatal(err)
		}
		return e, m.register(t, e)
	}
	a, local := open("a", "one")
	for _, c := range []struct {
		key, secret string
		in          bool
	}{{"b", "one", true}, {"c", "two", false}, {"d", "", false}} {
		peer, remote := open(c.key, c.secret)
		if err := a.RegisterRemoteEngine(peer.Desc()); err != nil {
			t.Fatal(err)
		}
		s, err := a.CreateSession(local, remote)
		if c.in != (err == nil && s != nil) || !c.in && !strings.Contains(err.Error(), config.AuthSecret) {
			t.Errorf("secret %q: %v, %v", c.secret, s, err)
		}
	}
}

// TestXGMIBesideRDMA checks that an XGMI backend is created beside RDMA if the environment asks for
// it.
func TestXGMIBesideRDMA(t *testing.T) {
	gpus(t, 1)
	has := func(e *Engine) string {
		var out []string
		for _, b := range e.Describe().Backends {
			out = append(out, b.Type)
		}
		return strings.Join(out, ",")
	}
	for value, want := range map[string]string{"0": "XGMI,RDMA", "0x": "XGMI,RDMA", "1": "RDMA", "": "RDMA"} {
		setEnv(t, map[string]string{config.DisableAutoXGMI: value})
		if e := newEngineWith(t, "a", BackendRDMA); has(e) != want || e.Desc().Port <= control.PortNone {
			t.Errorf("%s=%q: %s, port %d", config.DisableAutoXGMI, value, has(e), e.Desc().Port)
		}
	}
	if verbstest.Real() {
		return // this host has a NIC
	}
	verbstest.Count(t, 0)
	e := newEngineWith(t, "b")
	setEnv(t, map[string]string{config.RequireRDMA: "1"})
	if err := e.CreateBackend(BackendRDMA, nil); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), config.DisableAutoXGMI) ||
		!strings.Contains(err.Error(), "no active RDMA device on this host") {
		t.Errorf("without a NIC: %v", err)
	}
	setEnv(t, map[string]string{config.RequireRDMA: "1", config.DisableAutoXGMI: "0"})
	if err := e.CreateBackend(BackendRDMA, nil); err != nil || has(e) != "XGMI" || e.Desc().Port != control.PortNone {
		t.Errorf("GPUs instead of a NIC: %v, %s, port %d", err, has(e), e.Desc().Port)
	}
	m := onGPU(t, gpus(t, 1)[0], 4096)
	d := m.register(t, e)
	if s, err := e.CreateSession(d, d); err != nil || s == nil {
		t.Errorf("to itself: %v, %v", s, err)
	}
	other := newEngineWith(t, "c", BackendXGMI)
	if err := other.RegisterRemoteEngine(e.Desc()); err != nil {
		t.Fatal(err)
	}
	if s, err := other.CreateSession(onGPU(t, gpus(t, 1)[0], 4096).register(t, other), d); err != nil || s == nil {
		t.Errorf("from another engine of this host: %v, %v", s, err)
	}
}

// TestXGMILeavesAPortAlone checks a configured port that another process uses. The descriptor keeps
// the port, and peers do not connect to it.
func TestXGMILeavesAPortAlone(t *testing.T) {
	all := gpus(t, 1)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, text, _ := net.SplitHostPort(taken.Addr().String())
	port, _ := strconv.Atoi(text)
	e, err := NewEngine("a", EngineConfig{Host: "127.0.0.1", Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.CreateBackend(BackendXGMI, nil); err != nil {
		t.Fatal(err)
	}
	b := newEngineWith(t, "b", BackendXGMI)
	if err := b.RegisterRemoteEngine(e.Desc()); err != nil || e.Desc().Port != port {
		t.Fatalf("port %d, %v", e.Desc().Port, err)
	}
	m := onGPU(t, all[0], 4096)
	if s, err := b.CreateSession(m.register(t, b), m.register(t, e)); err != nil || s == nil {
		t.Errorf("session %v, %v", s, err)
	}
}

// TestGPUMemoryComesBack checks that memory registered before the first backend works with it, and
// that device memory does not leak.
func TestGPUMemoryComesBack(t *testing.T) {
	all := gpus(t, 1)
	m := onGPU(t, all[0], 4096)
	e := newEngineWith(t, "a")
	d := m.register(t, e)
	if s, refusal, err := e.SessionFor(d, d); s != nil || err != nil || refusal.Code() != CodeErrBadState || !strings.Contains(refusal.Message(), "create one first") {
		t.Errorf("without a backend: %v, %v, %v", s, refusal, err)
	}
	if err := e.CreateBackend(BackendXGMI, nil); err != nil {
		t.Fatal(err)
	}
	s, err := e.CreateSession(d, d)
	if err != nil || s == nil {
		t.Fatalf("session %v, %v", s, err)
	}
	succeed(t, s.Write([]uint64{0}, []uint64{2048}, []uint64{2048}, 0))
	if h := onHost(t, 64); true {
		if s, err := e.CreateSession(h.register(t, e), d); s != nil || err != nil {
			t.Errorf("host memory over XGMI: %v, %v", s, err)
		}
	}
	if gputest.Real() {
		return
	}
	gputest.Fail(t, "cuPointerGetAttributes=999")
	if _, err := e.RegisterMemory(m.addr, 4096, 0, LocGPU); err == nil || !strings.Contains(err.Error(), "(999)") {
		t.Errorf("a driver that does not answer: %v", err)
	}
}
