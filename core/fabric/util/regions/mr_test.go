// SPDX-License-Identifier: MIT

package regions

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
)

func key(id uint64, secret byte) fabric.RegionKey {
	return fabric.RegionKey{ID: id, Secret: [16]byte{secret, 15: secret}}
}

const bothRights = fabric.AccessRemoteRead | fabric.AccessRemoteWrite

func TestMRTableRegister(t *testing.T) {
	tab := NewTable()
	for _, c := range []struct {
		name string
		buf  fabric.Buffer
		id   uint64
		want error
	}{
		{"a buffer", fabric.Buffer{Addr: 4096, Len: 100}, 1, nil},
		{"the id again", fabric.Buffer{Addr: 8192, Len: 100}, 1, fabric.ErrNoKey},
		{"nothing", fabric.Buffer{}, 2, nil},
		{"at address 0", fabric.Buffer{Len: 1}, 3, fabric.ErrInvalid},
		{"over the end of memory", fabric.Buffer{Addr: math.MaxUint64 - 1, Len: 3}, 3, fabric.ErrInvalid},
		{"device memory", fabric.Buffer{Addr: 4096, Len: 1, Kind: fabric.MemCUDA}, 3, fabric.ErrNotSupported},
	} {
		if _, err := tab.Register(c.buf, bothRights, key(c.id, 1)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if tab.Len() != 2 {
		t.Errorf("%d regions", tab.Len())
	}
}

// TestMRTableDevice registers device memory, which has a descriptor until it is closed.
func TestMRTableDevice(t *testing.T) {
	tab := NewTable()
	tab.TakeDevice()
	buf := fabric.Buffer{Addr: 4096, Len: 100, Kind: fabric.MemCUDA, Device: 1}
	m, err := tab.Register(buf, bothRights, key(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	host, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 100}, bothRights, key(2, 1))
	if err != nil || host.Desc() != 0 || m.Desc() == 0 {
		t.Fatalf("descriptors %d of device and %d of host memory, %v", m.Desc(), host.Desc(), err)
	}
	if tab.Device(0) != nil || tab.Device(m.Desc()+1) != nil {
		t.Error("a descriptor that nobody has names a region")
	}
	got := tab.Device(m.Desc())
	if got != m || got.Buffer() != buf {
		t.Fatalf("%+v", got)
	}
	got.Release()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if tab.Device(m.Desc()) != nil {
		t.Error("a closed region has a descriptor")
	}
	again, err := tab.Register(buf, bothRights, key(1, 1))
	if err != nil || again.Desc() == m.Desc() {
		t.Errorf("descriptor %d again, %v", again.Desc(), err)
	}
}

// TestMRPrefetch: the provider is asked while the region is open, and only if it does something.
func TestMRPrefetch(t *testing.T) {
	tab := NewTable()
	m, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 100}, bothRights, key(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Prefetch(); !errors.Is(err, fabric.ErrNotSupported) {
		t.Errorf("nobody does anything: %v", err)
	}
	tab = NewTable()
	var asked *MR
	refusal := error(nil)
	tab.OnPrefetch(func(mr *MR) error {
		if asked = mr; mr.users.Load() != 1 {
			t.Errorf("%d users of the region", mr.users.Load())
		}
		return refusal
	})
	if m, err = tab.Register(fabric.Buffer{Addr: 4096, Len: 100}, bothRights, key(1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := m.Prefetch(); err != nil || asked != m {
		t.Errorf("asked for %v, %v", asked, err)
	}
	refusal = fabric.ErrAccess
	if err := m.Prefetch(); !errors.Is(err, fabric.ErrAccess) {
		t.Errorf("a refusal is %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	asked = nil
	if err := m.Prefetch(); !errors.Is(err, fabric.ErrNoKey) || asked != nil {
		t.Errorf("of a closed region: %v, asked for %v", err, asked)
	}
}

func TestMRTableAcquire(t *testing.T) {
	tab := NewTable()
	m, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 100}, fabric.AccessRemoteRead, key(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		key  fabric.RegionKey
		want fabric.Access
		err  error
	}{
		{"right", key(1, 1), fabric.AccessRemoteRead, nil},
		{"wrong secret", key(1, 2), fabric.AccessRemoteRead, fabric.ErrNoKey},
		{"unknown id", key(2, 1), fabric.AccessRemoteRead, fabric.ErrNoKey},
		{"unknown id, no secret", fabric.RegionKey{ID: 2}, fabric.AccessRemoteRead, fabric.ErrNoKey},
		{"wrong secret and right", key(1, 2), fabric.AccessRemoteWrite, fabric.ErrNoKey},
		{"missing right", key(1, 1), fabric.AccessRemoteWrite, fabric.ErrAccess},
		{"one right of two", key(1, 1), bothRights, fabric.ErrAccess},
	} {
		got, err := tab.Acquire(c.key, c.want)
		if err != c.err || (got != nil) != (err == nil) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if got != nil {
			got.Release()
		}
	}
	for _, c := range []struct {
		off, n uint64
		ok     bool
	}{
		{0, 100, true}, {0, 0, true}, {100, 0, true}, {99, 1, true},
		{0, 101, false}, {99, 2, false}, {101, 0, false}, {math.MaxUint64, 2, false}, {2, math.MaxUint64, false}, {1 << 63, 1 << 63, false},
	} {
		addr, err := m.Range(c.off, c.n)
		if c.ok != (err == nil) || c.ok && addr != 4096+c.off || err != nil && err != fabric.ErrRange {
			t.Errorf("range %d+%d: %d, %v", c.off, c.n, addr, err)
		}
	}
	got, size, err := fabric.ParseRegionKey(m.Raw())
	if err != nil || got != key(1, 1) || size != 100 || m.Key() != got || m.Access() != fabric.AccessRemoteRead || m.Buffer().Len != 100 {
		t.Errorf("raw: %v, %d, %v", got, size, err)
	}
}

func TestMRClose(t *testing.T) {
	tab := NewTable()
	var order []string
	var m *MR
	tab.OnRevoke(func(id uint64) {
		if _, err := tab.Acquire(key(id, 1), 0); err != fabric.ErrNoKey {
			t.Errorf("a new access during revoke: %v", err)
		}
		order = append(order, "revoke")
		time.AfterFunc(5*time.Millisecond, m.Release)
	})
	tab.OnStuck(func(uint64) { order = append(order, "stuck") })
	m, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 1}, bothRights, key(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Acquire(key(1, 1), bothRights); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(order) != 1 || order[0] != "revoke" || tab.Len() != 0 {
		t.Fatalf("hooks %v, %d regions", order, tab.Len())
	}
	if _, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 1}, bothRights, key(1, 1)); err != nil {
		t.Fatalf("the id is not free again: %v", err)
	}
}

func TestMRCloseStuck(t *testing.T) {
	tab := NewTable()
	tab.grace = 5 * time.Millisecond
	var m *MR
	let := true
	tab.OnStuck(func(uint64) {
		if let {
			m.Release()
		}
	})
	m, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 1}, bothRights, key(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = tab.Acquire(key(1, 1), 0)
	if err := m.Close(); err != nil {
		t.Fatalf("the holder was disconnected: %v", err)
	}
	if m, err = tab.Register(fabric.Buffer{Addr: 4096, Len: 1}, bothRights, key(1, 1)); err != nil {
		t.Fatal(err)
	}
	_, _ = tab.Acquire(key(1, 1), 0)
	let = false
	for range 2 {
		if err := m.Close(); !errors.Is(err, fabric.ErrTimeout) {
			t.Fatalf("held on: %v", err)
		}
	}
	if _, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 1}, bothRights, key(1, 1)); !errors.Is(err, fabric.ErrNoKey) {
		t.Fatalf("the id of a region in use: %v", err)
	}
}

// TestMRCloseRace holds that nobody is inside once Close returned.
func TestMRCloseRace(t *testing.T) {
	for range 200 {
		tab := NewTable()
		m, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 1}, bothRights, key(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		var inside atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			start(&wg, func() {
				for {
					m, err := tab.Acquire(key(1, 1), bothRights)
					if err != nil {
						return
					}
					inside.Add(1)
					inside.Add(-1)
					m.Release()
				}
			})
		}
		if err := m.Close(); err != nil || inside.Load() != 0 {
			t.Fatalf("%v, %d inside", err, inside.Load())
		}
		wg.Wait()
	}
}

func TestImports(t *testing.T) {
	tab := NewImports()
	if _, err := tab.Import([]byte("short")); !errors.Is(err, fabric.ErrInvalid) {
		t.Fatalf("malformed: %v", err)
	}
	var all []*Remote
	for i := range uint64(100) {
		r, err := tab.Import(key(i, 3).Raw(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	for i, r := range all {
		if got := tab.Lookup(r.Key()); got != r || got.Size != uint64(i) || got.Region != key(uint64(i), 3) || r.Base() != 0 {
			t.Fatalf("import %d: %+v", i, got)
		}
	}
	old := all[50]
	for range 2 {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fresh, err := tab.Import(key(500, 3).Raw(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil || tab.Lookup(fresh.Key()) != fresh || tab.Len() != 100 {
		t.Fatalf("a late close hit the next user of the slot: %v, %d", err, tab.Len())
	}
	for _, h := range []uint64{old.Key(), 0, 1 << 40, math.MaxUint64} {
		if r := tab.Lookup(h); r != nil {
			t.Errorf("handle %#x: %+v", h, r)
		}
	}
}

func TestTablesDoNotAllocate(t *testing.T) {
	tab, imports := NewTable(), NewImports()
	if _, err := tab.Register(fabric.Buffer{Addr: 4096, Len: 100}, bothRights, key(1, 1)); err != nil {
		t.Fatal(err)
	}
	r, err := imports.Import(key(1, 1).Raw(100))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		m, err := tab.Acquire(imports.Lookup(r.Key()).Region, fabric.AccessRemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = m.Range(90, 11)
		m.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func start(wg *sync.WaitGroup, fn func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		fn()
	}()
}
