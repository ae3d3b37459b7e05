// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"mori/core/config"
	"mori/io/internal/control"
)

func TestNoBackendServesThePair(t *testing.T) {
	a, b, _ := pair(t, 8, BackendRDMA, nil)
	bare, err := NewEngine("bare", EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, addr := buffer(t, 8)
	d, err := bare.RegisterMemory(addr, 8, -1, LocCPU)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := bare.CreateSession(d, b.desc); s != nil || err != nil {
		t.Errorf("without a backend: %v, %v", s, err)
	}
	s, refusal, err := bare.SessionFor(d, b.desc)
	if s != nil || err != nil || refusal.Code() != CodeErrBadState || !strings.Contains(refusal.Message(), "create one first") {
		t.Errorf("without a backend: %v, %v, %v", s, refusal, err)
	}
	stranger := b.desc
	stranger.EngineKey = "stranger"
	if s, err := a.CreateSession(a.desc, stranger); s != nil || err != nil {
		t.Errorf("unregistered peer: %v, %v", s, err)
	}
	unreachable := b.Desc()
	unreachable.Port = control.PortNone
	if err := a.RegisterRemoteEngine(unreachable); err != nil {
		t.Fatal(err)
	}
	if s, err := a.CreateSession(a.desc, b.desc); s != nil || err != nil {
		t.Errorf("a peer without a network: %v, %v", s, err)
	}
}

func TestForeignAndStaleDescriptors(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := pair(t, 64, kind, nil)
		if _, err := a.CreateSession(b.desc, b.desc); !errors.Is(err, ErrNotFound) {
			t.Errorf("a foreign local region: %v", err)
		}
		wrong := b.desc
		wrong.Secret[0] ^= 1
		if _, err := a.CreateSession(a.desc, wrong); !errors.Is(err, ErrNotFound) {
			t.Errorf("a wrong key: %v", err)
		}
		longer := b.desc
		longer.Size++
		if _, err := a.CreateSession(a.desc, longer); !errors.Is(err, ErrInvalid) {
			t.Errorf("a wrong size: %v", err)
		}
		if err := b.DeregisterMemory(b.desc); err != nil {
			t.Fatal(err)
		}
		st := s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1)
		if c := st.Wait(deadline(t)); c != CodeErrNotFound || !strings.Contains(st.Message(), `"b"`) {
			t.Errorf("after the peer took the region back: %v %q", c, st.Message())
		}
		if err := a.DeregisterMemory(a.desc); err != nil {
			t.Fatal(err)
		}
		if st := s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1); st.Code() != CodeErrNotFound || s.Alive() {
			t.Errorf("after we took the region back: %v, alive %v", st.Code(), s.Alive())
		}
	})
}

// The transport also rejects a key that the control plane never saw: the target checks each access.
func TestTheTransportChecksTheKey(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, good := pair(t, 64, kind, nil)
		forged := b.desc
		forged.Secret[5] ^= 0x40
		s, why := a.newSession(a.desc, forged)
		if why != nil {
			t.Fatal(why)
		}
		fill(a.mem, 7)
		st := s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1)
		if c := st.Wait(deadline(t)); c != CodeErrNotFound {
			t.Errorf("%v %q", c, st.Message())
		}
		if !bytes.Equal(b.mem, make([]byte, 64)) {
			t.Error("a forged key moved bytes")
		}
		succeed(t, good.Write([]uint64{0}, []uint64{0}, []uint64{64}, 2))
	})
}

func TestPeerThatWentAway(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		_, b, s := pair(t, 32<<20, kind, nil)
		st := s.Write([]uint64{0}, []uint64{0}, []uint64{32 << 20}, 1)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if c := st.Wait(deadline(t)); c == CodeInProgress {
			t.Error("the transfer never ended")
		}
		st = s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 2)
		if c := st.Wait(deadline(t)); !c.Failed() || !strings.Contains(st.Message(), `"b"`) {
			t.Errorf("writing to a closed engine: %v %q", c, st.Message())
		}
	})
}

func TestARestartedPeerIsNotItsPredecessor(t *testing.T) {
	a, b, _ := pair(t, 64, BackendRDMA, nil)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := NewEngine("b", EngineConfig{Port: b.Desc().Port})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.CreateBackend(BackendRDMA, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateSession(a.desc, b.desc); err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("with the old descriptor: %v", err)
	}
	if err := a.RegisterRemoteEngine(again.Desc()); err != nil {
		t.Fatal(err)
	}
	_, addr := buffer(t, 64)
	d, err := again.RegisterMemory(addr, 64, -1, LocCPU)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.CreateSession(a.desc, d)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 3))
}

func TestPortTaken(t *testing.T) {
	a := newSide(t, "a", 8, BackendRDMA, nil)
	e, err := NewEngine("b", EngineConfig{Port: a.Desc().Port})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.CreateBackend(BackendRDMA, nil); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a taken port: %v", err)
	}
}

func TestBackendsThatNeedWhatIsNotHere(t *testing.T) {
	e, err := NewEngine("a", EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.CreateBackend(BackendFabric, nil); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "GPU") {
		t.Errorf("FABRIC: %v", err)
	}
	config.SetLookup(func(name string) (string, bool) {
		return map[string]string{config.RequireRDMA: "1", config.FabricProvider: "^verbs"}[name], name == config.RequireRDMA || name == config.FabricProvider
	})
	defer config.SetLookup(nil)
	if err := e.CreateBackend(BackendRDMA, nil); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), config.RequireRDMA) {
		t.Errorf("RDMA required: %v", err)
	}
}

func TestBackendConfigIsChecked(t *testing.T) {
	e, err := NewEngine("a", EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for name, spoil := range map[string]func(*BackendConfig){
		"notif_per_qp": func(c *BackendConfig) { c.NotifPerQP = 0 }, "max_chunks_per_transfer": func(c *BackendConfig) { c.MaxChunks = 0 },
		"num_nics_per_transfer": func(c *BackendConfig) { c.NumNICsPerTransfer = 0 }, "chunk_bytes": func(c *BackendConfig) { c.EnableChunking, c.ChunkBytes = true, 100 },
	} {
		cfg := DefaultBackendConfig()
		spoil(cfg)
		if err := e.CreateBackend(BackendRDMA, cfg); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
