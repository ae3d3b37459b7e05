// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"mori/core"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/proxy"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// A remoteSide is how kernels of this PE's GPU come to PEs that its loads and stores do not reach: they post to a queue, which a thread of the
// host serves over the provider of the World's network, by an endpoint of its own.
type remoteSide struct {
	port  *proxy.Port
	queue *proxy.Queue
	local []proxy.Local
	desk  *proxy.Desk // where peers ask for atomics on this PE's heap
	words *access.GPU // which does them
	nic   *nicSide    // to whose queues kernels post what it does, if Config.NIC says so
	why   error       // why there is no queue
}

// A remoteName is what PEs tell each other of their ports.
type remoteName struct {
	Addr    fabric.Addr
	Regions []proxy.Shown // the heap, and the desk
	NIC     nicName
}

// Remote is a queue for kernels of this PE's GPU that come to other PEs through this host, a mori::proxy::Queue of native/include/mori/proxy
// as its address in the GPU's memory. There is none, and ok is false, if kernels reach all PEs by loads and stores (Ptr is not 0), if the heap is in host
// memory, or if a port could not be opened, which the log says.
//
// PEs of the queue are those of the World. It reaches the PEs whose Ptr is 0; operations on others end with an error. Region 0 of each PE is its heap, so that
// the remote offset of a symmetric address is how far it is behind the heap's begin, which is Queue.local on the device and Base here; local
// addresses are those of the heap and of registered buffers. The queue lives until Finalize, and no kernel may use it longer.
func (w *World) Remote() (queue uint64, ok bool) {
	if w.side == nil || w.pes.Closed() {
		return 0, false
	}
	queue = w.side.remote.device()
	return queue, queue != 0
}

// RemoteErr is why the queue of Remote does not reach PE pe, nil if it does: once an operation to a PE has failed, it takes no more.
func (w *World) RemoteErr(pe int) error {
	switch {
	case w.side == nil || w.side.remote == nil:
		return fmt.Errorf("there is no queue for kernels: %w", errors.ErrUnsupported)
	case w.side.remote.queue == nil:
		return w.side.remote.why
	case !w.side.isFar(pe):
		return fmt.Errorf("PE %d is not reached by the queue for kernels: %w", pe, ErrInvalid)
	}
	return w.side.remote.queue.Err(pe)
}

// device is the address of the queue, 0 if there is none.
func (r *remoteSide) device() uint64 {
	if r == nil || r.queue == nil {
		return 0
	}
	return r.queue.Device()
}

// whyNot is why there is no queue.
func (r *remoteSide) whyNot() error {
	if r == nil || r.why == nil {
		return errors.ErrUnsupported
	}
	return r.why
}

// failed is why the first of these PEs takes no more, nil if all do: what kernels put to it since is lost, whether they have noticed or not.
func (r *remoteSide) failed(pes []int) error {
	if r == nil || r.queue == nil {
		return nil
	}
	for _, pe := range pes {
		if err := r.queue.Err(pe); err != nil {
			return fmt.Errorf("what kernels do at PE %d: %w", pe, err)
		}
	}
	return nil
}

// What waits for the queue say that are no errors of the network: kRefused, kTimeout and kStopped of native/include/mori/proxy/layout.hpp.
const statusRefused, statusTimeout, statusStopped = 0x10001, 0x10002, 0x10003

// RemoteStatus is why a kernel could do nothing at PE pe, one that it reaches by the queue of Remote or by that of Config.NIC, which it was told by the status
// of a mori::shmem::Outcome.
func (w *World) RemoteStatus(pe int, status uint64) error {
	if err := w.RemoteErr(pe); err != nil {
		return err
	}
	return w.side.remote.meaning(pe, status)
}

// meaning is why a kernel could do nothing at PE pe, which it was told by a status.
func (r *remoteSide) meaning(pe int, status uint64) error {
	if err := r.queue.Err(pe); err != nil {
		return err
	}
	if status>>32 != 0 && r.nic != nil {
		return r.nic.nic.StatusErr(uint64(uint32(status)))
	}
	switch status {
	case statusRefused:
		return fmt.Errorf("the queue refused what was posted: %w", errors.ErrUnsupported)
	case statusTimeout:
		if report, ok := r.queue.Report(); ok {
			return fmt.Errorf("it waited for command %d of its queue, and %d had ended: %w", report.Ticket, report.Ended, ErrTimeout)
		}
		return ErrTimeout
	case statusStopped:
		return proxy.ErrClosed
	}
	return fabric.Errno(status)
}

// openRemote makes the queue if PEs are apart. If it comes up on some PE only, none has one, and the World goes on without. Collective.
func (w *World) openRemote(ctx context.Context, s *deviceSide) error {
	if w.net == nil {
		return nil
	}
	r := &remoteSide{}
	s.remote = r
	mine := remoteName{}
	cause := w.pes.AllWell(ctx, r.open(ctx, w, &mine))
	if cause == nil {
		text, _ := json.Marshal(mine) // plain fields
		blobs, err := w.pes.Gather(ctx, text)
		if err != nil {
			return err
		}
		cause = w.pes.AllWell(ctx, r.meet(ctx, w, blobs))
	}
	if cause == nil {
		return nil
	}
	r.why = fmt.Errorf("open a queue for kernels over %s: %w", w.net.Provider(), cause)
	w.pes.Log.Warn("kernels reach only the PEs whose memory is mapped", "pe", w.pes.Me, "error", r.why)
	err := r.close()
	r.port, r.queue, r.nic = nil, nil, nil
	if w.cfg.NIC != "" { // somebody has asked for it
		return errors.Join(r.why, err)
	}
	return errors.Join(w.Failed(), err)
}

// open opens the port and registers what region 0 is.
func (r *remoteSide) open(ctx context.Context, w *World, mine *remoteName) (err error) {
	provider := w.net.Provider()
	hints := remote.Hints(provider, true)
	hints.Src = core.ListenAddr(provider, w.cfg.Host)
	if r.port, err = proxy.Open(ctx, w.net.Registry(), hints); err != nil {
		return err
	}
	b := w.side.sync
	buffer := fabric.Buffer{Addr: b.Base, Len: b.Have(), Kind: access.KindOf(w.gpu.Device), Device: w.gpu.Device.Ordinal}
	region, err := r.port.Register(buffer)
	if err != nil {
		return err
	}
	r.local = []proxy.Local{{Buffer: buffer, Desc: region.Desc}}
	if r.desk, err = proxy.NewDesk(r.port, w.pes.N); err != nil {
		return err
	}
	mine.Addr, mine.Regions = r.port.Name(), []proxy.Shown{{Raw: region.Raw, Len: buffer.Len}, r.desk.Shown()}
	r.words = access.NewGPU(w.gpu.Device, w.pes.Timeout, nil)
	if err = r.words.Prepare(proxy.Appliers); err != nil || w.cfg.NIC == "" {
		return err
	}
	r.nic, err = openNIC(w.gpu, w.cfg.NIC, b, w.pes.N, w.side.far, &mine.NIC)
	return err
}

// warmBytes are written to each PE before kernels run: at the first op of a size providers make what they need for the memory of GPUs, and drivers may have that
// wait for kernels. The heaps are all zeros then.
const warmBytes = 4 << 20

// meet reaches the ports of the PEs that are far, and makes the queue.
func (r *remoteSide) meet(ctx context.Context, w *World, blobs [][]byte) (err error) {
	routes := make([]proxy.Peer, w.pes.N)
	nics, without := make([]nicName, w.pes.N), []int(nil)
	for _, pe := range w.side.far {
		var its remoteName
		if err := peers.Decode(blobs[pe], pe, "name", &its); err != nil {
			return err
		}
		if nics[pe] = its.NIC; (its.NIC.Name == "") != (w.cfg.NIC == "") {
			without = append(without, pe)
		}
		if len(its.Regions) != 2 || its.Regions[0].Len != r.local[0].Len {
			return fmt.Errorf("PE %d shows %d regions that are not like those here: %w", pe, len(its.Regions), ErrMismatch)
		}
		if routes[pe], err = r.port.Reach(its.Addr, its.Regions); err != nil {
			return fmt.Errorf("PE %d: %w", pe, err)
		}
		regions := routes[pe].Regions
		routes[pe].Regions, routes[pe].Desk = regions[:1], regions[1]
		zeros := r.local[0]
		zeros.Len = min(zeros.Len, warmBytes)
		if err = r.port.Write(ctx, routes[pe], zeros); err != nil {
			return fmt.Errorf("write to PE %d: %w", pe, err)
		}
	}
	cfg := proxy.Config{Port: r.port, Peers: routes, Local: r.local, Memory: proxy.OnGPU(w.gpu.Device), Wait: noTimeout, Desk: r.desk, Self: w.pes.Me, Atomics: r.change}
	if w.pes.Timeout > 0 {
		cfg.Wait = w.pes.Timeout
	}
	if len(without) > 0 {
		return fmt.Errorf("kernels are to post to NIC %q here, and not on %s: %w", w.cfg.NIC, peers.NameAll(without), ErrMismatch)
	}
	if r.queue, err = proxy.New(cfg); err != nil || r.nic == nil {
		return err
	}
	return r.nic.connect(w.pes.Me, nics, r.queue.Device())
}

// changes are how a access.GPU does what peers ask for.
var changes = map[fabric.AtomicOp]AtomicOp{fabric.AtomicSum: AtomicFetchAdd, fabric.AtomicBAnd: AtomicFetchAnd, fabric.AtomicBOr: AtomicFetchOr,
	fabric.AtomicBXor: AtomicFetchXor, fabric.AtomicRead: AtomicFetch, fabric.AtomicWrite: AtomicSwap, fabric.AtomicCSwap: AtomicCompareSwap}

// change does an atomic on this PE's heap for a kernel of another PE.
func (r *remoteSide) change(c proxy.Change) (old uint64, err error) {
	op, ok := changes[c.Op]
	if !ok {
		return 0, fmt.Errorf("%v: %w", c.Op, fabric.ErrNotSupported)
	}
	return r.words.Atomic(op, c.Word, c.Addr, c.Value, c.Compare)
}

// showKernels lets operations of kernels that go by the queue name a buffer as their local side. With local held.
func (w *World) showKernels(addr, size uint64) (hide func() error, err error) {
	if _, ok := w.Remote(); !ok {
		return nil, nil
	}
	r := w.side.remote
	buffer := fabric.Buffer{Addr: addr, Len: size}
	if onDevice(addr, size) {
		p, err := device.Lookup(addr)
		if err != nil || p.Device == nil {
			return nil, err
		}
		buffer.Kind, buffer.Device = access.KindOf(p.Device), p.Device.Ordinal
	}
	region, err := r.port.Register(buffer)
	if err != nil {
		return nil, err
	}
	r.local = append(slices.Clip(r.local), proxy.Local{Buffer: buffer, Desc: region.Desc})
	hide = func() error {
		r.local = slices.DeleteFunc(slices.Clone(r.local), func(l proxy.Local) bool { return l.Addr == addr })
		return errors.Join(r.queue.SetLocal(r.local), r.port.Forget(region))
	}
	if err := r.queue.SetLocal(r.local); err != nil {
		return nil, errors.Join(err, hide())
	}
	return hide, nil
}

// shut ends what is under way: no byte of it can land here afterwards, and kernels that wait for it are told.
func (r *remoteSide) shut() error {
	if r == nil || r.port == nil {
		return nil
	}
	return r.port.Close()
}

// close frees the queue, which no kernel may use any more.
func (r *remoteSide) close() error {
	if r == nil {
		return nil
	}
	err := errors.Join(r.shut(), r.nic.close())
	if r.queue != nil {
		if busy := r.queue.Close(); busy != nil {
			return errors.Join(err, busy)
		}
	}
	if r.words != nil {
		err = errors.Join(err, r.words.Close())
	}
	return errors.Join(err, r.desk.Close())
}
