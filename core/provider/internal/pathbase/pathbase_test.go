// SPDX-License-Identifier: MIT

package pathbase

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
)

func TestPending(t *testing.T) {
	made := 0
	p := Pending[int]{New: func() *int { made++; return new(int) }}
	if p.Get() == nil || made != 1 {
		t.Errorf("made %d ops, want one", made)
	}
	ops := make([]int, keep+1)
	for i := range ops {
		p.Add(&ops[i])
	}
	if n := p.Len(); n != len(ops) {
		t.Errorf("%d ops are pending, want %d", n, len(ops))
	}
	p.Lock()
	ops[3] = 1
	p.Unlock()
	if !p.Any(func(op *int) bool { return *op == 1 }) || p.Any(func(op *int) bool { return *op == 2 }) {
		t.Error("Any does not see the ops")
	}
	p.Remove(&ops[3])
	for i := range ops {
		p.Recycle(&ops[i])
	}
	spare := 0
	for p.Get(); made == 1; p.Get() {
		spare++
	}
	if p.Len() != 0 || spare != keep {
		t.Errorf("%d ops are pending and %d spare, want none and %d", p.Len(), spare, keep)
	}
}

// A hardware counts its registrations.
type hardware struct {
	has, made     atomic.Int32
	stuck, failed atomic.Uint64
	refuses       error
}

type registration struct {
	use local.Gate
	dev *hardware
}

func (r *registration) Use() *local.Gate { return &r.use }

func (r *registration) Close() error {
	r.dev.has.Add(-1)
	return r.dev.refuses
}

func (d *hardware) register() *registration {
	d.has.Add(1)
	d.made.Add(1)
	return &registration{dev: d}
}

// newTable returns a domain's region table and one region of it.
func newTable(t *testing.T) (*regions.Table, *regions.MR) {
	t.Helper()
	mem, err := sys.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Free(mem) })
	table := regions.NewTable()
	mr, err := table.Register(fabric.Buffer{Addr: sys.AddrOf(mem), Len: 4096}, fabric.AccessRemoteRead, fabric.RegionKey{ID: 5})
	if err != nil {
		t.Fatal(err)
	}
	return table, mr
}

func newRegistrations(t *testing.T, within time.Duration) (*Registrations[*registration], *regions.MR, *hardware) {
	t.Helper()
	table, mr := newTable(t)
	d := &hardware{}
	return &Registrations[*registration]{
		Table: table, Within: within, Stuck: func(id uint64) { d.stuck.Store(id) },
		Failed: func(id uint64, _ error) { d.failed.Store(id) },
	}, mr, d
}

func TestARegionIsRegisteredOnce(t *testing.T) {
	r, mr, d := newRegistrations(t, time.Minute)
	if g := r.Find(mr, nil); g != nil {
		t.Error("a registration that was not made")
	}
	first, second := r.Find(mr, d.register), r.Find(mr, d.register)
	if first == nil || first != second || d.made.Load() != 1 {
		t.Fatalf("%p and %p, made %d times", first, second, d.made.Load())
	}
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		r.Drop(mr.Key().ID)
	}()
	first.use.Leave()
	if d.has.Load() != 1 {
		t.Error("dropped while an op uses it")
	}
	second.use.Leave()
	<-dropped
	if d.has.Load() != 0 || len(r.All()) != 0 {
		t.Errorf("the device has %d registrations after Drop", d.has.Load())
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestARegionThatClosesMeanwhile(t *testing.T) {
	r, mr, d := newRegistrations(t, time.Minute)
	g := r.Find(mr, func() *registration {
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
		return d.register()
	})
	if g != nil || d.has.Load() != 0 {
		t.Errorf("registration %p of a closed region, the device has %d", g, d.has.Load())
	}
}

func TestOpsThatDoNotEnd(t *testing.T) {
	r, mr, d := newRegistrations(t, time.Millisecond)
	g := r.Find(mr, d.register)
	r.Drop(mr.Key().ID)
	if d.stuck.Load() != 5 || d.has.Load() != 1 {
		t.Errorf("stuck region %d, the device has %d registrations", d.stuck.Load(), d.has.Load())
	}
	g.use.Leave()
}

func TestCloseTakesAll(t *testing.T) {
	r, mr, d := newRegistrations(t, time.Minute)
	d.refuses = errors.New("no")
	r.Find(mr, d.register).use.Leave()
	r.Close()
	if d.failed.Load() != 5 || d.has.Load() != 0 {
		t.Errorf("failed for region %d, the device has %d", d.failed.Load(), d.has.Load())
	}
	if r.Find(mr, d.register) != nil || d.made.Load() != 1 {
		t.Error("a registration after Close")
	}
}
