// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core"
	"mori/core/config"
	"mori/core/fabric"
	"mori/core/memory"
)

// A wire is the network over one endpoint of a provider of core/fabric. Each op on its way has a flight, whose number is its Ctx. Who
// queues takes one from free and waits if there is none; reap, which the completion queue calls, gives it back.
type wire struct {
	w    *World
	info *fabric.Info
	why  []string // the providers that come before were not taken
	fab  fabric.Fabric
	dom  fabric.Domain
	cq   fabric.CQ
	av   fabric.AV
	ep   fabric.Endpoint

	peers   []wirePeer
	flights []flight
	free    chan int
	bounce  []byte // bounceBytes and the words of an atomic for each flight

	fences atomic.Uint64         // calls of fence; the first op to each PE after one carries it
	epochs *epochs               // which of what was queued quiet waits for
	failed atomic.Pointer[error] // the first error of what nobody waited for, which quiet has not told

	reaps atomic.Int64 // calls of reap that are not done
	ended [16]fabric.Completion
	entry fabric.ErrEntry
}

// A wirePeer is a PE that is not mapped. Its lock keeps what is submitted behind the fence that it is behind.
type wirePeer struct {
	dest fabric.AVAddr

	mu     sync.Mutex
	fenced uint64       // of fences, those that an op has carried
	ops    [1]fabric.Op // scratch
}

var _ network = (*wire)(nil)

// apart reports whether there are PEs that do not map each other, and whether some of them are on different nodes, or could as well be. It is
// the same on all PEs.
func (w *World) apart() (any, far bool) {
	for _, h := range w.nodes {
		any = any || h.DisableP2P && w.n > 1
		far = far || h.Node != w.nodes[0].Node || h.Room != w.nodes[0].Room
	}
	return any || far || w.split, far
}

// A name is what PEs tell each other of their endpoints.
type name struct {
	Provider string
	Addr     fabric.Addr
}

// connect opens the network, if one is needed. Collective.
func (w *World) connect(ctx context.Context) error {
	any, far := w.apart()
	if !any {
		return nil
	}
	n := newWire(w)
	w.wire = n // close has it from here on
	mine := name{}
	cause := n.open(ctx, far)
	if cause == nil {
		mine.Provider = n.info.Provider
		mine.Addr, cause = n.ep.Name()
	}
	if err := w.allWell(ctx, cause); err != nil {
		return fmt.Errorf("open a network to PEs whose memory is not mapped: %w", err)
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.gather(ctx, text)
	if err == nil {
		err = w.allWell(ctx, n.meet(blobs))
	}
	if err != nil {
		return err
	}
	n.cq.OnReady(n.reap)
	w.net = n
	w.log.Info("a network reaches the PEs whose memory is not mapped", "pe", w.me, "provider", n.info.Provider, "address", mine.Addr)
	return nil
}

// newWire is a wire without an endpoint.
func newWire(w *World) *wire {
	n := &wire{w: w, peers: make([]wirePeer, w.n), flights: make([]flight, flights), free: make(chan int, flights), epochs: newEpochs()}
	n.bounce = make([]byte, flights*flightBytes)
	for i := range n.flights {
		n.flights[i].at = memory.AddrOf(n.bounce) + uint64(i)*flightBytes
		n.free <- i
	}
	return n
}

// open makes the endpoint.
func (n *wire) open(ctx context.Context, far bool) (err error) {
	tls, err := core.TLS(config.Get(config.TLSCert), config.Get(config.TLSKey), config.Get(config.TLSCA))
	if err != nil {
		return err
	}
	registry, err := core.Registry(core.Options{Filter: config.Get(config.FabricProvider), TLS: tls, Sums: config.Flag(config.IOChecksum, false),
		Compress: config.Flag(config.IOCompress, false), Log: n.w.log})
	if err != nil {
		return err
	}
	hints := &fabric.Info{EPType: fabric.EPRDM, Caps: fabric.CapRMA | fabric.CapAtomic}
	if n.w.gpu != nil {
		hints.Caps |= fabric.CapHMEM
		hints.MRMode |= fabric.MRHMEM
	}
	infos, err := registry.GetInfo(ctx, "", "", hints)
	if err != nil && n.w.gpu != nil {
		return fmt.Errorf("the GPU does not reach %s, and no transport here takes memory of GPUs: %w: %w", n.w.unlinked(), err, errors.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	for _, in := range infos {
		if why := core.Unfit(in.Provider, !far); why != "" {
			n.why = append(n.why, in.Provider+": "+why)
			continue
		}
		n.info = in.Clone()
		break
	}
	if n.info == nil {
		return fmt.Errorf("no provider fits: %v: %w", n.why, fabric.ErrNoData)
	}
	n.info.Src = core.ListenAddr(n.info.Provider, n.w.cfg.Host)
	if n.fab, err = registry.Open(ctx, n.info); err != nil {
		return err
	}
	if n.dom, err = n.fab.Domain(ctx, n.info); err != nil {
		return err
	}
	if n.cq, err = n.dom.CQ(2 * flights); err != nil {
		return err
	}
	if n.av, err = n.dom.AV(n.w.n); err != nil {
		return err
	}
	if n.ep, err = n.dom.Endpoint(n.info); err != nil {
		return err
	}
	if err = errors.Join(n.ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false), n.ep.BindAV(n.av)); err != nil {
		return err
	}
	return n.ep.Enable()
}

// meet makes the names of the PEs known to the endpoint.
func (n *wire) meet(blobs [][]byte) error {
	for pe, blob := range blobs {
		var their name
		if err := json.Unmarshal(blob, &their); err != nil {
			return fmt.Errorf("read the name of PE %d: %w", pe, err)
		}
		if their.Provider != n.info.Provider {
			return fmt.Errorf("PE %d uses provider %s, PE %d %s: %w", n.w.me, n.info.Provider, pe, their.Provider, ErrMismatch)
		}
		if n.w.maps(pe) && (n.w.gpu == nil || n.w.linked[pe]) {
			continue
		}
		numbers, err := n.av.Insert(their.Addr)
		if err != nil {
			return fmt.Errorf("address %q of PE %d: %w", their.Addr, pe, err)
		}
		n.peers[pe].dest = numbers[0]
	}
	return nil
}

// register lets the other PEs reach this PE's part of b.
func (n *wire) register(b *block) error {
	key := fabric.RegionKey{ID: n.w.nextKey}
	n.w.nextKey++
	_, _ = rand.Read(key.Secret[:]) // never fails
	buffer := fabric.Buffer{Addr: b.base, Len: b.size}
	if b.gpu {
		buffer.Kind, buffer.Device = kindOf(n.w.gpu.dev), n.w.gpu.dev.Ordinal
	}
	mr, err := n.dom.Reg(buffer, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, key)
	if err != nil {
		return fmt.Errorf("register %d bytes with %s: %w", b.size, n.info.Provider, err)
	}
	b.mr = mr
	return nil
}

// find makes PE pe's part of b known here.
func (n *wire) find(b *block, pe int, raw []byte) error {
	mr, err := n.dom.Import(raw)
	if err != nil {
		return fmt.Errorf("import the key of PE %d: %w", pe, err)
	}
	b.peers[pe].remote = remote{key: mr.Key(), base: mr.Base(), mr: mr}
	return nil
}

// shut ends all transfers: no byte of any of them can land here afterwards. Blocks can be dropped then.
func (n *wire) shut() error {
	if n.ep == nil {
		return nil
	}
	return n.ep.Close()
}

// close frees the rest.
func (n *wire) close() error {
	var errs []error
	if n.cq != nil {
		errs = append(errs, n.cq.Close())
	}
	if n.av != nil {
		errs = append(errs, n.av.Close())
	}
	if n.dom != nil {
		errs = append(errs, n.dom.Close())
	}
	if n.fab != nil {
		errs = append(errs, n.fab.Close())
	}
	return errors.Join(errs...)
}
