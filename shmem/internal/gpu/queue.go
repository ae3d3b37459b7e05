// SPDX-License-Identifier: MIT

package gpu

import (
	"context"
	"errors"
	"fmt"

	"mori/core"
	"mori/core/fabric"
	"mori/core/proxy"
	"mori/native/abi"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// A queueSide lets kernels of this PE's GPU reach PEs that loads and stores do not reach. Kernels
// post to a queue. A host thread serves it over the provider of the World's network, with its own
// endpoint.
type queueSide struct {
	port   *proxy.Port
	queue  *proxy.Queue
	local  []proxy.Local
	server *proxy.AtomicServer // where peers request atomics on this PE's heap
	words  *access.GPU         // executes them
	nic    *nicSide            // the NIC that kernels post to, if Config.NIC is set
	why    error               // why the queue is missing
}

// A queueName is what PEs send each other about their ports.
type queueName struct {
	Addr    fabric.Addr
	Regions []proxy.Shown // the heap, and the atomic server
	NIC     nicName
}

// device returns the device address of the queue, 0 if there is none.
func (r *queueSide) device() uint64 {
	if r == nil || r.queue == nil {
		return 0
	}
	return r.queue.Device()
}

// whyNot returns why the queue is missing.
func (r *queueSide) whyNot() error {
	if r == nil || r.why == nil {
		return errors.ErrUnsupported
	}
	return r.why
}

// failed returns why the first of these PEs accepts no more operations, nil if all do. Puts that
// kernels have posted since are lost, even if the kernels have not noticed.
func (r *queueSide) failed(pes []int) error {
	if r == nil || r.queue == nil {
		return nil
	}
	for _, pe := range pes {
		if err := r.queue.Err(pe); err != nil {
			return fmt.Errorf("operations of kernels on PE %d: %w", pe, err)
		}
	}
	return nil
}

// meaning translates the status that a kernel got for an operation on PE pe into an error.
func (r *queueSide) meaning(pe int, status uint64) error {
	if err := r.queue.Err(pe); err != nil {
		return err
	}
	if status>>32 != 0 && r.nic != nil {
		return r.nic.nic.StatusErr(uint64(uint32(status)))
	}
	switch status {
	case abi.ProxyRefused:
		return fmt.Errorf("the queue refused the posted work: %w", errors.ErrUnsupported)
	case abi.ProxyTimeout:
		if report, ok := r.queue.Report(); ok {
			return fmt.Errorf("it waited for command %d of its queue, and %d had completed: %w", report.Ticket, report.Ended, peers.ErrTimeout)
		}
		return peers.ErrTimeout
	case abi.ProxyStopped:
		return proxy.ErrClosed
	}
	return fabric.Errno(status)
}

// open opens the port and registers region 0.
func (r *queueSide) open(ctx context.Context, s *Side, mine *queueName) (err error) {
	provider := s.env.Net.Provider()
	hints := remote.Hints(provider, true)
	hints.Src = core.ListenAddr(provider, s.env.Host)
	if r.port, err = proxy.Open(ctx, s.env.Net.Registry(), hints); err != nil {
		return err
	}
	b := s.sync
	buffer := fabric.Buffer{Addr: b.Base, Len: b.Have(), Kind: access.KindOf(s.env.GPU.Device), Device: s.env.GPU.Device.Ordinal}
	region, err := r.port.Register(buffer)
	if err != nil {
		return err
	}
	r.local = []proxy.Local{{Buffer: buffer, Desc: region.Desc}}
	if r.server, err = proxy.NewAtomicServer(r.port, s.env.PEs.N); err != nil {
		return err
	}
	mine.Addr, mine.Regions = r.port.Name(), []proxy.Shown{{Raw: region.Raw, Len: buffer.Len}, r.server.Shown()}
	r.words = access.NewGPU(s.env.GPU.Device, s.env.PEs.Timeout, nil)
	if err = r.words.Prepare(proxy.Executors); err != nil || s.env.NIC == "" {
		return err
	}
	r.nic, err = openNIC(s.env.GPU, s.env.NIC, b, s.env.PEs.N, s.far, &mine.NIC)
	return err
}

// warmBytes are written to each PE before kernels run. At the first op of a size, providers
// allocate what they need for GPU memory, and drivers may make that wait for running kernels. The
// heaps still contain zeros then.
const warmBytes = 4 << 20

// reach connects to the ports of the PEs in far and creates the queue.
func (r *queueSide) reach(ctx context.Context, s *Side, blobs [][]byte) (err error) {
	routes := make([]proxy.Peer, s.env.PEs.N)
	nics, without := make([]nicName, s.env.PEs.N), []int(nil)
	for _, pe := range s.far {
		var its queueName
		if err := peers.Decode(blobs[pe], pe, "name", &its); err != nil {
			return err
		}
		if nics[pe] = its.NIC; (its.NIC.Name == "") != (s.env.NIC == "") {
			without = append(without, pe)
		}
		if len(its.Regions) != 2 || its.Regions[0].Len != r.local[0].Len {
			return fmt.Errorf("PE %d has %d regions that do not match those here: %w", pe, len(its.Regions), peers.ErrMismatch)
		}
		if routes[pe], err = r.port.Reach(its.Addr, its.Regions); err != nil {
			return fmt.Errorf("PE %d: %w", pe, err)
		}
		regions := routes[pe].Regions
		routes[pe].Regions, routes[pe].Server = regions[:1], regions[1]
		zeros := r.local[0]
		zeros.Len = min(zeros.Len, warmBytes)
		if err = r.port.Write(ctx, routes[pe], zeros); err != nil {
			return fmt.Errorf("write to PE %d: %w", pe, err)
		}
	}
	cfg := proxy.Config{Port: r.port, Peers: routes, Local: r.local, Memory: proxy.OnGPU(s.env.GPU.Device), Wait: noTimeout, AtomicServer: r.server, Self: s.env.PEs.Me, Atomics: r.change}
	if s.env.PEs.Timeout > 0 {
		cfg.Wait = s.env.PEs.Timeout
	}
	if len(without) > 0 {
		return fmt.Errorf("kernels post to NIC %q on this PE, but not on %s: %w", s.env.NIC, peers.NameAll(without), peers.ErrMismatch)
	}
	if r.queue, err = proxy.New(cfg); err != nil || r.nic == nil {
		return err
	}
	return r.nic.connect(s.env.PEs.Me, nics, r.queue.Device())
}

// changes executes the atomics that peers request, through access.GPU.
var changes = map[fabric.AtomicOp]access.AtomicOp{fabric.AtomicSum: access.AtomicFetchAdd, fabric.AtomicBAnd: access.AtomicFetchAnd, fabric.AtomicBOr: access.AtomicFetchOr,
	fabric.AtomicBXor: access.AtomicFetchXor, fabric.AtomicRead: access.AtomicFetch, fabric.AtomicWrite: access.AtomicSwap, fabric.AtomicCSwap: access.AtomicCompareSwap}

// change executes an atomic on this PE's heap for a kernel of another PE.
func (r *queueSide) change(c proxy.Change) (old uint64, err error) {
	op, ok := changes[c.Op]
	if !ok {
		return 0, fmt.Errorf("%v: %w", c.Op, fabric.ErrNotSupported)
	}
	return r.words.Atomic(op, c.Word, c.Addr, c.Value, c.Compare)
}

// shut ends all pending operations. No byte of them can land here afterwards, and waiting kernels
// get an error.
func (r *queueSide) shut() error {
	if r == nil || r.port == nil {
		return nil
	}
	return r.port.Close()
}

// close frees the queue. No kernel may use it any more.
func (r *queueSide) close() error {
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
	return errors.Join(err, r.server.Close())
}
