// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	lf "mori/native/libfabric"
)

// A domain is a fabric.Domain.
type domain struct {
	util.DomainBase
	network *network
	offer   offer
	list    lf.InfoList // owns offer.id
	fid     lf.FID
	imports *imports
	atomics atomicTable
}

var (
	_ fabric.Domain        = (*domain)(nil)
	_ fabric.AtomicQuerier = (*domain)(nil)
)

// checkAddr rejects texts that are not addresses in the domain's format.
func (d *domain) checkAddr(a fabric.Addr) error {
	_, err := addrBytes(d.offer.fi.AddrFormat, a)
	return err
}

// AV opens a vector that notifies its endpoints; see fabric.Domain.
func (d *domain) AV(size int) (fabric.AV, error) {
	v, err := d.OpenAV(size)
	if err != nil {
		return nil, err
	}
	return &vector{AV: v, users: make(map[*datagram]bool), known: make(map[fabric.Addr]bool)}, nil
}

// An atomicTable has the most elements of an op by kind, op and type. Zero means unsupported.
type atomicTable map[fabric.OpKind]*[fabric.AtomicMSwap + 1][fabric.Complex128 + 1]int

// queryAll queries libfabric for all atomics at once, so that Submit can reject unsupported ones.
func queryAll(dom lf.FID, most uint64) atomicTable {
	t := make(atomicTable)
	for _, kind := range []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic} {
		t[kind] = new([fabric.AtomicMSwap + 1][fabric.Complex128 + 1]int)
		for op := fabric.AtomicMin; op <= fabric.AtomicMSwap && most > 0; op++ {
			for typ := fabric.Int8; typ <= fabric.Complex128; typ++ {
				if !fabric.AtomicValid(kind, op, typ) {
					continue
				}
				if n, err := queryAtomic(dom, kind, op, typ); err == nil {
					t[kind][op][typ] = min(n, int(most)/typ.Size())
				}
			}
		}
	}
	return t
}

// QueryAtomic returns what queryAll has recorded; see fabric.AtomicQuerier.
func (d *domain) QueryAtomic(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType) (int, error) {
	if !fabric.AtomicValid(kind, op, t) {
		return 0, fmt.Errorf("query %v %v of %v: %w", kind, op, t, fabric.ErrInvalid)
	}
	n := d.atomics[kind][op][t]
	if n == 0 {
		return 0, fmt.Errorf("query %v %v of %v: %w", kind, op, t, fabric.ErrNoSys)
	}
	return n, nil
}

// queryAtomic returns the most elements of one op that libfabric accepts.
func queryAtomic(dom lf.FID, kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType) (int, error) {
	var flags uint64
	switch kind {
	case fabric.OpFetchAtomic:
		flags = lf.FetchAtomic
	case fabric.OpCompareAtomic:
		flags = lf.CompareAtomic
	}
	count, size, err := dom.QueryAtomic(atomicType(t), atomicOp(op), flags)
	if err == nil && (count == 0 || size != uint64(t.Size())) {
		err = fabric.ErrNoSys
	}
	return int(count), err
}

// Our data types begin at 1; the order is the same.
func atomicType(t fabric.DataType) uint32 { return lf.Int8 + uint32(t-fabric.Int8) }
func atomicOp(op fabric.AtomicOp) uint32  { return lf.Min + uint32(op-fabric.AtomicMin) }

func (d *domain) Close() error {
	first, err := d.Parent.Close()
	if !first {
		return err
	}
	err = d.fid.Close()
	d.list.Free()
	d.network.Leave()
	if err != nil {
		return fmt.Errorf("close domain: %w", cause(err))
	}
	return nil
}
