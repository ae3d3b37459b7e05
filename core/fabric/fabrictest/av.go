// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"mori/core/fabric"
)

var avCases = []testCase{
	{"an address keeps its number until it is removed", avNumbers},
	{"vectors grow beyond their size", avSizes},
	{"one bad address of many adds none", func(r *rig) {
		h := r.host()
		av, name := h.av(4), h.node(shape{}).name
		_, err := av.Insert(name, "", variant(name, 1))
		r.want("insert", err, fabric.ErrInvalid)
		if got, err := av.Insert(); len(got) != 0 || err != nil {
			r.Errorf("nothing was inserted as %v, %v", got, err)
		}
		for i := range fabric.AVAddr(8) {
			_, err := av.Lookup(i)
			r.want(fmt.Sprintf("number %d", i), err, fabric.ErrInvalid)
		}
	}},
	{"an unknown number is refused and changes nothing", func(r *rig) {
		a, b := r.pair(shape{})
		src := r.patterned(8, 1)
		for _, dest := range []fabric.AVAddr{a.dest + 1, 1000, 1 << 31, 1 << 40, 1<<64 - 1} {
			op := fabric.Op{Kind: fabric.OpSend, Seg: src.seg()}
			bad := op
			bad.Dest = dest
			k, err := a.try(op, bad, op)
			if k != 1 {
				r.Fatalf("took %d ops of which the second has destination %d", k, dest)
			}
			r.want("submit", err, fabric.ErrInvalid)
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(8).seg()})
			a.ok(0)
			b.ok(0)
		}
		_, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Seg: src.seg()}}) // to nobody
		r.want("no destination", err, fabric.ErrInvalid)
		a.silent()
		stillWorks(r, a, b)
	}},
	{"a number that was removed is refused", func(r *rig) {
		a, b := r.pair(shape{})
		stillWorks(r, a, b)
		r.must(a.av.Remove(a.dest))
		_, err := a.try(fabric.Op{Kind: fabric.OpSend})
		r.want("submit", err, fabric.ErrInvalid)
		a.dest = a.insert(b.name)
		stillWorks(r, a, b)
	}},
	{"pending ops outlive their number", func(r *rig) {
		a, b := r.pair(shape{})
		const n = 4 << 20
		src, far := r.patterned(n, 1), r.alloc(n)
		to := a.imports(b.reg(far, bothRights).Raw())
		for i := range uint64(4) {
			a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, n), Ctx: i})
		}
		r.must(a.av.Remove(a.dest))
		for range 4 {
			if e := a.read(); e.Err != 0 {
				r.Fatal(&e)
			}
		}
		r.has(far, 1, 0)
	}},
	{"a reused number reaches the new peer", avReuse},
	{"a vector is safe for concurrent use", avTogether},
}

// variant is a text like name, which is an address as good as it is but for another number at its
// end.
func variant(name fabric.Addr, i int) fabric.Addr {
	digits := strings.TrimRight(string(name), "0123456789")
	return fabric.Addr(digits + strconv.Itoa(10000+i))
}

func avNumbers(r *rig) {
	h := r.host()
	av, name := h.av(2), h.node(shape{}).name
	addrs := []fabric.Addr{name, variant(name, 1), variant(name, 2), variant(name, 1)}
	got, err := av.Insert(addrs...)
	r.must(err)
	if len(got) != 4 || got[0] == 0 || got[0] == got[1] || got[1] == got[2] || got[0] == got[2] || got[1] != got[3] {
		r.Fatalf("%q were inserted as %v", addrs, got)
	}
	again, err := av.Insert(addrs[2], addrs[0])
	r.must(err)
	if again[0] != got[2] || again[1] != got[0] {
		r.Errorf("inserted again as %v, first as %v", again, got)
	}
	for i, number := range got {
		if a, err := av.Lookup(number); a != addrs[i] || err != nil {
			r.Errorf("number %d is %q, %v; want %q", number, a, err, addrs[i])
		}
	}
	r.must(av.Remove(got[1]))
	_, err = av.Lookup(got[1])
	r.want("look up what was removed", err, fabric.ErrInvalid)
	r.want("remove it again", av.Remove(got[1]), fabric.ErrInvalid)
	r.want("remove nobody", av.Remove(0), fabric.ErrInvalid)
	if a, err := av.Lookup(got[2]); a != addrs[2] || err != nil {
		r.Errorf("after another was removed: %q, %v", a, err)
	}
}

func avSizes(r *rig) {
	h := r.host()
	name := h.node(shape{}).name
	for size := 1; size <= 1024; size *= 2 {
		av := h.av(size)
		seen := make(map[fabric.AVAddr]fabric.Addr)
		for i := range size + 10 {
			got, err := av.Insert(variant(name, i))
			r.must(err)
			if seen[got[0]] != "" || got[0] == 0 {
				r.Fatalf("size %d: number %d was given twice, or is nobody's", size, got[0])
			}
			seen[got[0]] = variant(name, i)
		}
		for number, want := range seen {
			if a, err := av.Lookup(number); a != want || err != nil {
				r.Fatalf("size %d: number %d is %q, %v; want %q", size, number, a, err, want)
			}
		}
		r.must(av.Close())
	}
}

func avReuse(r *rig) {
	a := r.host().node(shape{})
	src := r.patterned(64, 1)
	var last *node
	for i := range 10 {
		b := r.host().node(shape{})
		dst := r.alloc(64)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 7})
		a.dest = a.insert(b.name)
		a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: uint64(i)})
		b.ok(7)
		r.has(dst, 1, 0)
		r.must(a.av.Remove(a.dest))
		if last != nil {
			last.silent()
		}
		last = b
	}
}

// avTogether inserts and removes while others look up and send.
func avTogether(r *rig) {
	a, b := r.pair(shape{})
	to := a.imports(b.reg(r.alloc(8), bothRights).Raw())
	src := r.patterned(8, 1)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				addr := variant(a.name, 100*w+i%50)
				got, err := a.av.Insert(addr)
				if err != nil || len(got) != 1 {
					r.Errorf("insert: %v", err)
					return
				}
				found, errLookup := a.av.Lookup(got[0])
				if err := errors.Join(errLookup, a.av.Remove(got[0])); err != nil || found != addr {
					r.Errorf("%q is %q: %v", addr, found, err)
					return
				}
			}
		}()
	}
	for i := range uint64(500) {
		a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8), Ctx: i})
	}
	close(stop)
	wg.Wait()
}
