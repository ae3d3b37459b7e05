// SPDX-License-Identifier: MIT

package setup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// AVCases are the cases of address vectors.
var AVCases = []rig.Case{
	{Name: "an address keeps its number until it is removed", Run: avNumbers},
	{Name: "vectors grow beyond their size", Run: avSizes},
	{Name: "one bad address of many adds none", Run: func(r *rig.Rig) {
		h := r.Host()
		av, name := h.AV(4), h.Node(rig.Shape{}).Address
		_, err := av.Insert(name, "", variant(name, 1))
		r.Want("insert", err, fabric.ErrInvalid)
		if got, err := av.Insert(); len(got) != 0 || err != nil {
			r.Errorf("nothing was inserted as %v, %v", got, err)
		}
		for i := range fabric.AVAddr(8) {
			_, err := av.Lookup(i)
			r.Want(fmt.Sprintf("number %d", i), err, fabric.ErrInvalid)
		}
	}},
	{Name: "an unknown number is refused and changes nothing", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src := r.Patterned(8, 1)
		for _, dest := range []fabric.AVAddr{a.Dest + 1, 1000, 1 << 31, 1 << 40, 1<<64 - 1} {
			op := fabric.Op{Kind: fabric.OpSend, Seg: src.Seg()}
			bad := op
			bad.Dest = dest
			k, err := a.Try(op, bad, op)
			if k != 1 {
				r.Fatalf("took %d ops of which the second has destination %d", k, dest)
			}
			r.Want("submit", err, fabric.ErrInvalid)
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(8).Seg()})
			a.OK(0)
			b.OK(0)
		}
		_, err := a.EP.Submit([]fabric.Op{{Kind: fabric.OpSend, Seg: src.Seg()}}) // to nobody
		r.Want("no destination", err, fabric.ErrInvalid)
		a.Silent()
		rig.StillWorks(r, a, b)
	}},
	{Name: "a number that was removed is refused", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		rig.StillWorks(r, a, b)
		r.Must(a.AV.Remove(a.Dest))
		_, err := a.Try(fabric.Op{Kind: fabric.OpSend})
		r.Want("submit", err, fabric.ErrInvalid)
		a.Dest = a.Insert(b.Address)
		rig.StillWorks(r, a, b)
	}},
	{Name: "pending ops outlive their number", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		const n = 4 << 20
		src, far := r.Patterned(n, 1), r.Alloc(n)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		for i := range uint64(4) {
			a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, n), Ctx: i})
		}
		r.Must(a.AV.Remove(a.Dest))
		for range 4 {
			if e := a.Read(); e.Err != 0 {
				r.Fatal(&e)
			}
		}
		r.Has(far, 1, 0)
	}},
	{Name: "a reused number reaches the new peer", Run: avReuse},
	{Name: "a vector is safe for concurrent use", Run: avTogether},
}

// variant is a text like name, which is an address as good as it is but for another number at its
// end.
func variant(name fabric.Addr, i int) fabric.Addr {
	digits := strings.TrimRight(string(name), "0123456789")
	return fabric.Addr(digits + strconv.Itoa(10000+i))
}

func avNumbers(r *rig.Rig) {
	h := r.Host()
	av, name := h.AV(2), h.Node(rig.Shape{}).Address
	addrs := []fabric.Addr{name, variant(name, 1), variant(name, 2), variant(name, 1)}
	got, err := av.Insert(addrs...)
	r.Must(err)
	if len(got) != 4 || got[0] == 0 || got[0] == got[1] || got[1] == got[2] || got[0] == got[2] || got[1] != got[3] {
		r.Fatalf("%q were inserted as %v", addrs, got)
	}
	again, err := av.Insert(addrs[2], addrs[0])
	r.Must(err)
	if again[0] != got[2] || again[1] != got[0] {
		r.Errorf("inserted again as %v, first as %v", again, got)
	}
	for i, number := range got {
		if a, err := av.Lookup(number); a != addrs[i] || err != nil {
			r.Errorf("number %d is %q, %v; want %q", number, a, err, addrs[i])
		}
	}
	r.Must(av.Remove(got[1]))
	_, err = av.Lookup(got[1])
	r.Want("look up what was removed", err, fabric.ErrInvalid)
	r.Want("remove it again", av.Remove(got[1]), fabric.ErrInvalid)
	r.Want("remove nobody", av.Remove(0), fabric.ErrInvalid)
	if a, err := av.Lookup(got[2]); a != addrs[2] || err != nil {
		r.Errorf("after another was removed: %q, %v", a, err)
	}
}

func avSizes(r *rig.Rig) {
	h := r.Host()
	name := h.Node(rig.Shape{}).Address
	for size := 1; size <= 1024; size *= 2 {
		av := h.AV(size)
		seen := make(map[fabric.AVAddr]fabric.Addr)
		for i := range size + 10 {
			got, err := av.Insert(variant(name, i))
			r.Must(err)
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
		r.Must(av.Close())
	}
}

func avReuse(r *rig.Rig) {
	a := r.Host().Node(rig.Shape{})
	src := r.Patterned(64, 1)
	var last *rig.Node
	for i := range 10 {
		b := r.Host().Node(rig.Shape{})
		dst := r.Alloc(64)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 7})
		a.Dest = a.Insert(b.Address)
		a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: uint64(i)})
		b.OK(7)
		r.Has(dst, 1, 0)
		r.Must(a.AV.Remove(a.Dest))
		if last != nil {
			last.Silent()
		}
		last = b
	}
}

// avTogether inserts and removes while others look up and send.
func avTogether(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	to := a.Imports(b.Reg(r.Alloc(8), rig.BothRights).Raw())
	src := r.Patterned(8, 1)
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
				addr := variant(a.Address, 100*w+i%50)
				got, err := a.AV.Insert(addr)
				if err != nil || len(got) != 1 {
					r.Errorf("insert: %v", err)
					return
				}
				found, errLookup := a.AV.Lookup(got[0])
				if err := errors.Join(errLookup, a.AV.Remove(got[0])); err != nil || found != addr {
					r.Errorf("%q is %q: %v", addr, found, err)
					return
				}
			}
		}()
	}
	for i := range uint64(500) {
		a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8), Ctx: i})
	}
	close(stop)
	wg.Wait()
}
