// SPDX-License-Identifier: MIT

package dv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"mori/core/gpunic/mlx5"
	native "mori/native/mlx5"
)

// A NIC executes commands through the kernel, which requires an object's handle for commands on
// that object.
type NIC struct {
	name string
	ctx  native.Context

	mu      sync.Mutex // no object is destroyed while one is in use
	closed  bool
	objects map[object]native.Object
	umems   map[uint32]native.Umem
	uars    map[uint32]native.UAR
}

var _ mlx5.Cmd = (*NIC)(nil)

// An object is identified by its kind and the NIC's number.
type object struct {
	kind uint8
	id   uint32
}

const (
	kindPD = iota
	kindMKey
	kindCQ
	kindQP
)

// A way is how a command is sent.
type way uint8

const (
	wayGeneral way = iota
	wayCreate
	wayModify
	wayQuery
	wayDestroy
)

// routes lists the supported commands.
var routes = map[uint16]struct {
	way  way
	kind uint8
}{
	mlx5.OpQueryHCACap: {wayGeneral, 0},
	mlx5.OpAllocPD:     {wayCreate, kindPD}, mlx5.OpDeallocPD: {wayDestroy, kindPD},
	mlx5.OpCreateMKey: {wayCreate, kindMKey}, mlx5.OpDestroyMKey: {wayDestroy, kindMKey},
	mlx5.OpCreateCQ: {wayCreate, kindCQ}, mlx5.OpDestroyCQ: {wayDestroy, kindCQ},
	mlx5.OpCreateQP: {wayCreate, kindQP}, mlx5.OpDestroyQP: {wayDestroy, kindQP},
	mlx5.OpRst2Init: {wayModify, kindQP}, mlx5.OpInit2RTR: {wayModify, kindQP}, mlx5.OpRTR2RTS: {wayModify, kindQP},
	mlx5.Op2Err: {wayModify, kindQP}, mlx5.Op2Rst: {wayModify, kindQP}, mlx5.OpQueryQP: {wayQuery, kindQP},
}

// Open opens a NIC by its libibverbs name.
func Open(name string) (*NIC, error) {
	ctx, err := native.Open(name)
	if err != nil {
		return nil, err
	}
	return &NIC{
		name: name, ctx: ctx, objects: map[object]native.Object{}, umems: map[uint32]native.Umem{}, uars: map[uint32]native.UAR{},
	}, nil
}

// Do implements mlx5.Cmd.
func (n *NIC) Do(in, out []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.gone()
	}
	op := mlx5.OpOf(in)
	r, ok := routes[op]
	if !ok {
		return fmt.Errorf("%s: %w", mlx5.OpName(op), errors.ErrUnsupported)
	}
	if len(out) < 16 {
		return fmt.Errorf("%s with room for a reply of %d bytes: %w", mlx5.OpName(op), len(out), mlx5.ErrArgument)
	}
	clear(out)
	err := n.route(r.way, r.kind, in, out)
	if out[0] != mlx5.StatusOK {
		return nil // the firmware's reply says more than the errno
	}
	return err
}

// number returns the object number of a command or reply.
func number(b []byte) uint32 { return binary.BigEndian.Uint32(b[8:]) & 0xffffff }

func (n *NIC) route(w way, kind uint8, in, out []byte) error {
	switch w {
	case wayGeneral:
		return n.ctx.General(in, out)
	case wayCreate:
		o, err := n.ctx.Create(in, out)
		if err == nil {
			n.objects[object{kind, number(out)}] = o
		}
		return err
	}
	key := object{kind, number(in)}
	o, ok := n.objects[key]
	if !ok {
		return fmt.Errorf("object %#x of kind %d: unknown object: %w", key.id, kind, mlx5.ErrArgument)
	}
	switch w {
	case wayModify:
		return o.Modify(in, out)
	case wayQuery:
		return o.Query(in, out)
	}
	delete(n.objects, key)
	return o.Destroy()
}

// Umem implements mlx5.Cmd.
func (n *NIC) Umem(addr, bytes uint64) (uint32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, n.gone()
	}
	u, id, err := n.ctx.Register(addr, bytes)
	if err == nil {
		n.umems[id] = u
	}
	return id, err
}

// FreeUmem implements mlx5.Cmd.
func (n *NIC) FreeUmem(id uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	u, ok := n.umems[id]
	if n.closed || !ok {
		return fmt.Errorf("deregister memory %d: unknown handle: %w", id, mlx5.ErrArgument)
	}
	delete(n.umems, id)
	return u.Close()
}

// UAR implements mlx5.Cmd.
func (n *NIC) UAR() (register uint64, page uint32, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, 0, n.gone()
	}
	u, register, page, err := n.ctx.NewUAR()
	if err == nil {
		n.uars[page] = u
	}
	return register, page, err
}

// FreeUAR implements mlx5.Cmd.
func (n *NIC) FreeUAR(page uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	u, ok := n.uars[page]
	if n.closed || !ok {
		return fmt.Errorf("free doorbells %d: unknown handle: %w", page, mlx5.ErrArgument)
	}
	delete(n.uars, page)
	u.Close()
	return nil
}

func (n *NIC) gone() error { return fmt.Errorf("%s: %w", n.name, mlx5.ErrClosed) }

// Close destroys the remaining objects, queue pairs before the objects that they use, and closes
// the NIC.
func (n *NIC) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	left := slices.SortedFunc(maps.Keys(n.objects), func(a, b object) int { return int(b.kind) - int(a.kind) })
	for _, key := range left {
		errs = append(errs, n.objects[key].Destroy())
	}
	for _, u := range n.umems {
		errs = append(errs, u.Close())
	}
	for _, u := range n.uars {
		u.Close()
	}
	return errors.Join(append(errs, n.ctx.Close())...)
}
