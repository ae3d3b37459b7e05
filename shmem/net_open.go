// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"mori/core"
	"mori/core/fabric"
	"mori/core/memory"
)

// A wire is the network over one endpoint of a provider of core/fabric. Each op on its way has a flight, whose number is its Ctx. Who
// queues takes one from free and waits if there is none; reap, which the completion queue calls, gives it back.
type wire struct {
	w    *World
	info *fabric.Info
	why  []string // the providers that come before were not taken

	registry *fabric.Registry
	fab      fabric.Fabric
	dom      fabric.Domain
	cq       fabric.CQ
	av       fabric.AV
	ep       fabric.Endpoint

	peers   []wirePeer
	flights []flight
	free    chan int
	bounce  []byte // bounceBytes and the words of an atomic for each flight

	bounceMR fabric.MR // of bounce, if NICs carry the bytes
	trial    *trial
	unpinned atomic.Pointer[error] // why a NIC did not take some region, the first time

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
		any = any || h.DisableP2P && w.pes.N > 1
		far = far || h.Node != w.nodes[0].Node || h.Room != w.nodes[0].Room
	}
	return any || far || w.split, far
}

// A name is what PEs tell each other of their endpoints.
type name struct {
	Addr fabric.Addr
	Key  []byte // of the words that others write to in the trial, if there is one
}

// connect opens the network, if one is needed: the best transport that all PEs have, and that works between all of them. Collective.
func (w *World) connect(ctx context.Context) error {
	any, far := w.apart()
	if !any {
		return nil
	}
	menu, err := w.chooseTransports(ctx, far)
	if err != nil {
		return fmt.Errorf("open a network to PEs whose memory is not mapped: %w", err)
	}
	why := menu.why
	for i, provider := range menu.all {
		n := newWire(w)
		n.registry, n.info, n.why = menu.registry, menu.infos[provider], why
		w.wire = n // close has it from here on
		err = n.join(ctx)
		if err == nil {
			w.net = n
			w.pes.Log.Info("a network reaches the PEs whose memory is not mapped", "pe", w.pes.Me, "provider", provider, "why", strings.Join(why, "; "))
			return nil
		}
		if last := i == len(menu.all)-1; last || w.pes.Failed() != nil {
			break
		}
		w.pes.Log.Warn("a network does not come up, the next one is tried", "pe", w.pes.Me, "provider", provider, "error", err)
		why = append(why, fmt.Sprintf("%s: %s", provider, strings.ReplaceAll(err.Error(), "\n", "; ")))
		w.wire = nil
		if err := errors.Join(n.shut(), n.close()); err != nil {
			w.pes.Log.Warn("close a network that does not come up", "pe", w.pes.Me, "provider", provider, "error", err)
		}
	}
	return fmt.Errorf("open a network to PEs whose memory is not mapped: %w", err)
}

// join opens the endpoint, meets those of the other PEs, and tries out the way to each. Collective.
func (n *wire) join(ctx context.Context) error {
	w := n.w
	var t *trial
	mine := name{}
	cause := n.open(ctx)
	if cause == nil {
		mine.Addr, cause = n.ep.Name()
	}
	if cause == nil && core.Pins(n.info.Provider) {
		t, cause = n.newTrial()
		n.trial = t // which owns what the endpoint may touch until it is shut
		if cause == nil {
			mine.Key = t.reach.Load().own[0].Raw()
		}
	}
	defer func() {
		if err := t.close(); err != nil {
			w.pes.Log.Warn("take back the words of a trial", "pe", w.pes.Me, "error", err)
		}
	}()
	if err := w.pes.AllWell(ctx, cause); err != nil {
		return err
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.pes.Gather(ctx, text)
	if err == nil {
		err = w.pes.AllWell(ctx, n.meet(blobs, t))
	}
	if err == nil && t != nil {
		err = t.run(ctx)
	}
	return err
}

// newWire is a wire without an endpoint.
func newWire(w *World) *wire {
	n := &wire{w: w, peers: make([]wirePeer, w.pes.N), flights: make([]flight, flights), free: make(chan int, flights), epochs: newEpochs()}
	n.bounce = make([]byte, flights*flightBytes)
	for i := range n.flights {
		n.flights[i].at = memory.AddrOf(n.bounce) + uint64(i)*flightBytes
		n.free <- i
	}
	return n
}

// open makes the endpoint.
func (n *wire) open(ctx context.Context) (err error) {
	n.info.Src = core.ListenAddr(n.info.Provider, n.w.cfg.Host)
	if n.fab, err = n.registry.Open(ctx, n.info); err != nil {
		return err
	}
	if n.dom, err = n.fab.Domain(ctx, n.info); err != nil {
		return err
	}
	if n.cq, err = n.dom.CQ(2 * flights); err != nil {
		return err
	}
	if n.av, err = n.dom.AV(n.w.pes.N); err != nil {
		return err
	}
	if n.ep, err = n.dom.Endpoint(n.info); err != nil {
		return err
	}
	if err = errors.Join(n.ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false), n.ep.BindAV(n.av)); err != nil {
		return err
	}
	if err = n.ep.Enable(); err != nil {
		return err
	}
	n.cq.OnReady(n.reap)
	if !core.Pins(n.info.Provider) {
		return nil
	}
	n.bounceMR, err = n.register(fabric.Buffer{Addr: memory.AddrOf(n.bounce), Len: uint64(len(n.bounce))}, 0)
	return err
}

// meet makes the names of the PEs known to the endpoint, and to the trial, if there is one.
func (n *wire) meet(blobs [][]byte, t *trial) error {
	for pe, blob := range blobs {
		var their name
		if err := json.Unmarshal(blob, &their); err != nil {
			return fmt.Errorf("read the name of PE %d: %w", pe, err)
		}
		if n.w.maps(pe) && (n.w.gpu == nil || n.w.linked[pe]) {
			continue
		}
		numbers, err := n.av.Insert(their.Addr)
		if err != nil {
			return fmt.Errorf("address %q of PE %d: %w", their.Addr, pe, err)
		}
		n.peers[pe].dest = numbers[0]
		if t != nil {
			if err := n.find(t.reach.Load(), pe, their.Key); err != nil {
				return err
			}
		}
	}
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
	if n.bounceMR != nil {
		errs = append(errs, n.bounceMR.Close())
	}
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
