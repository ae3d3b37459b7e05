// SPDX-License-Identifier: MIT

package backend

import (
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"mori/io/internal/arrivals"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/region"
)

// newTable returns the table of an engine without peers.
func newTable(t *testing.T, regions *region.Table) *Table {
	t.Helper()
	signer, err := identity.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	if regions == nil {
		regions = new(region.Table)
	}
	return NewTable(TableConfig{Self: self(signer), Host: "127.0.0.1", Regions: regions, Created: func() {},
		Arrivals: arrivals.NewTable(func(identity.ID) bool { return false })})
}

func self(s identity.Signer) *control.Self {
	return &control.Self{Key: "a", Incarnation: 1, Signer: s, Log: slog.New(slog.DiscardHandler)}
}

func closeAll(t *testing.T, table *Table) {
	t.Helper()
	if err := table.config.Regions.RevokeAll(); err != nil {
		t.Error(err)
	}
	for _, tr := range table.Close() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}

// host registers a region of n bytes of host memory in all.
func host(t *testing.T, all *region.Table, n int) *region.Region {
	t.Helper()
	mem := make([]byte, n)
	t.Cleanup(func() { runtime.KeepAlive(mem) })
	r, err := region.New(self(identity.Signer{}), region.Request{Addr: uint64(reflect.ValueOf(mem).Pointer()),
		Size: uint64(n), Ordinal: -1, Location: descriptor.LocCPU})
	if err != nil {
		t.Fatal(err)
	}
	all.Add(r)
	return r
}

func TestATableChoosesTheFirstBackendThatServesAPair(t *testing.T) {
	var regions region.Table
	table, local := newTable(t, &regions), host(t, &regions, 64)
	defer closeAll(t, table)
	remote := &descriptor.Memory{EngineKey: "b", ID: 3, Loc: descriptor.LocCPU}
	none := func(what, says string, p *Peer) {
		t.Helper()
		if r, _, err := table.Choose(local, remote, p); r != nil || !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", what, r, err)
		}
	}
	near := &Peer{Port: 4711, SameNode: true}
	none("without a backend", "has no backend", near)
	if err := table.Create(TCP, DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	none("without a peer", "not registered as a peer", nil)
	none("an engine that only XGMI reaches", "which only XGMI reaches", &Peer{Port: control.PortNone, SameNode: true})
	r, _, err := table.Choose(local, remote, near)
	if err != nil || r.Backend.Kind != TCP || r.Memory() != "any" || len(r.Transports) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := table.Create(RDMA, DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	if r, _, err := table.Choose(local, remote, near); err != nil || r.Backend.Kind != RDMA {
		t.Errorf("RDMA and TCP: %+v, %v", r, err)
	}
	if b := table.Remove(RDMA); b == nil || !b.Removed() || table.Remove(RDMA) != nil || table.Has(RDMA) {
		t.Error("a backend is removed once")
	}
	if r, _, err := table.Choose(local, remote, near); err != nil || r.Backend.Kind != TCP {
		t.Errorf("TCP is left: %+v, %v", r, err)
	}
}

// All backends share the transports, and a region registered earlier is registered with them.
func TestTransportsAreOpenedOnce(t *testing.T) {
	var regions region.Table
	table, local := newTable(t, &regions), host(t, &regions, 64)
	for _, kind := range []Kind{TCP, RDMA, TCP} {
		if err := table.Create(kind, DefaultConfig()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, tr := range table.Transports() {
		if seen[tr.Name()] {
			t.Errorf("%s is open twice", tr.Name())
		}
		seen[tr.Name()] = true
		if _, err := local.MRDesc(tr); err != nil {
			t.Errorf("%s: %v", tr.Name(), err)
		}
	}
	if d, listens := table.Desc(); !listens || d.Port == 0 || d.Key != "a" {
		t.Errorf("%+v", d)
	}
	if got := table.Describe(); len(got) != 2 || got[0].Type != "RDMA" || got[1].Type != "TCP" || got[0].Notes == nil {
		t.Errorf("%+v", got)
	}
	if !table.Notifies() {
		t.Error("no backend notifies")
	}
	closeAll(t, table)
	if err := table.Create(XGMI, DefaultConfig()); !errors.Is(err, errs.ErrClosed) {
		t.Errorf("a closed table: %v", err)
	}
}

func TestConfigsThatNoBackendHonours(t *testing.T) {
	for what, change := range map[string]func(*Config){
		"notif_per_qp":            func(c *Config) { c.NotifPerQP = 0 },
		"max_chunks_per_transfer": func(c *Config) { c.MaxChunks = 0 },
		"num_nics_per_transfer":   func(c *Config) { c.NumNICsPerTransfer = 0 },
		"chunk_bytes":             func(c *Config) { c.EnableChunking, c.ChunkBytes = true, 4095 },
		"deadline_ms":             func(c *Config) { c.DeadlineMS = -1 },
	} {
		c := DefaultConfig()
		if err := c.Validate(); err != nil {
			t.Fatalf("the defaults: %v", err)
		}
		if change(c); !errors.Is(c.Validate(), errs.ErrInvalid) || !strings.Contains(c.Validate().Error(), what) {
			t.Errorf("%s: %v", what, c.Validate())
		}
	}
}
