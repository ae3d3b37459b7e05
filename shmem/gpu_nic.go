// SPDX-License-Identifier: MIT

package shmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"mori/core/device"
	"mori/core/memory"
	"mori/core/mlx5"
	"mori/core/mlx5/emu"
	"mori/core/mlx5/nics"
)

// A nicSide is a NIC to which kernels post by themselves: a queue for each PE that loads and stores do not reach.
type nicSide struct {
	g        *gpuHeap
	name     string
	emulated *emu.NIC
	device   *mlx5.Device
	region   *mlx5.Region
	window   *device.Window // the emulated NIC's
	queues   []*mlx5.Queue  // by PE
	table    *device.Memory
	peers    []uint64 // addresses of NicPeer, by PE
	undo     []func() error
}

// A nicName is what a PE tells the others of its NIC.
type nicName struct {
	Name   string
	Ends   [][]byte // of the queue for each PE
	Memory mlx5.MemoryView
}

const (
	nicLog       = 8 // of the blocks of a queue
	nicPeerBytes = 64
)

func (n *nicSide) later(f func() error) { n.undo = append(n.undo, f) }

// openNIC opens a NIC by its name, shows it a block, and makes a queue for each of these PEs.
func openNIC(g *gpuHeap, name string, b *block, npes int, far []int, told *nicName) (_ *nicSide, err error) {
	n := &nicSide{g: g, name: name, queues: make([]*mlx5.Queue, npes), peers: make([]uint64, npes)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open NIC %s for kernels: %w", name, err), n.close())
		}
	}()
	cmd, emulated, err := nics.Open(name, n.doorbells)
	if err != nil {
		return nil, err
	}
	n.emulated = emulated
	if n.device, err = mlx5.Open(cmd); err != nil {
		return nil, err
	}
	n.later(n.device.Close)
	if n.emulated != nil {
		if n.window, err = g.dev.NewWindow(b.base, b.have.Load()); err != nil {
			return nil, err
		}
		n.emulated.AddMemory(b.base, b.have.Load(), n.window)
	}
	n.region, err = n.device.Register(b.base, b.have.Load(), mlx5.AccessLocalWrite|mlx5.AccessRemoteWrite|mlx5.AccessRemoteRead)
	if err != nil {
		return nil, err
	}
	n.later(n.region.Close)
	told.Name, told.Memory, told.Ends = name, n.region.View(), make([][]byte, npes)
	for _, pe := range far {
		if err := n.addQueue(pe); err != nil {
			return nil, err
		}
		told.Ends[pe] = make([]byte, mlx5.RemoteEndBytes)
		end := n.queues[pe].End()
		end.Put(told.Ends[pe])
	}
	return n, nil
}

// doorbells are where kernels ring an emulated NIC.
func (n *nicSide) doorbells(bytes int) (addr uint64, free func() error, err error) {
	m, err := n.words(uint64(bytes))
	if err != nil {
		return 0, nil, err
	}
	return m.Addr(), m.Close, nil
}

// words are zeros in host memory that the GPU sees at the same address.
func (n *nicSide) words(bytes uint64) (*device.HostMemory, error) {
	m, err := n.g.dev.AllocHost(bytes)
	if err != nil {
		return nil, err
	}
	if m.DeviceAddr() != m.Addr() {
		return nil, errors.Join(fmt.Errorf("%s sees host memory at other addresses than the host: %w", n.g.dev, errors.ErrUnsupported), m.Close())
	}
	clear(memory.Bytes(m.Addr(), bytes))
	return m, nil
}

// addQueue makes the queue for a PE.
func (n *nicSide) addQueue(pe int) error {
	cfg := mlx5.QueueConfig{SQLog: nicLog}
	rings, err := n.words(cfg.Bytes())
	if err != nil {
		return err
	}
	n.later(rings.Close)
	cfg.Addr = rings.Addr()
	if n.queues[pe], err = n.device.NewQueue(cfg); err != nil {
		return err
	}
	n.later(n.queues[pe].Close)
	return nil
}

// connect connects the queues to those of the PEs, and tells the device of them. proxy is the queue for what a NIC does not do.
func (n *nicSide) connect(me int, names []nicName, proxy uint64) (err error) {
	mine := n.region.View()
	views := make([]byte, len(names)*mlx5.QueueViewBytes)
	table := make([]byte, len(names)*nicPeerBytes)
	if n.table, err = n.g.dev.Alloc(uint64(len(views) + len(table))); err != nil {
		return noMemory(err)
	}
	n.later(n.table.Close)
	for pe, q := range n.queues {
		if q == nil {
			continue
		}
		its := &names[pe]
		var end mlx5.RemoteEnd
		if me >= len(its.Ends) || its.Memory.Bytes != mine.Bytes {
			return fmt.Errorf("PE %d shows %d bytes to NICs, and %d queues: %w", pe, its.Memory.Bytes, len(its.Ends), ErrMismatch)
		}
		if err := end.Parse(its.Ends[me]); err != nil {
			return fmt.Errorf("the end of PE %d: %w", pe, err)
		}
		if err := q.Connect(end, nics.Path(n.emulated)); err != nil {
			return fmt.Errorf("connect to PE %d: %w", pe, err)
		}
		view := q.View()
		view.Put(views[pe*mlx5.QueueViewBytes:])
		n.peers[pe] = n.table.Addr() + uint64(len(views)+pe*nicPeerBytes)
		b := table[pe*nicPeerBytes : pe*nicPeerBytes]
		b = binary.LittleEndian.AppendUint64(b, n.table.Addr()+uint64(pe*mlx5.QueueViewBytes))
		b = binary.LittleEndian.AppendUint64(b, proxy)
		for _, m := range []mlx5.MemoryView{mine, its.Memory} {
			b = binary.LittleEndian.AppendUint64(b, m.Addr)
			b = binary.LittleEndian.AppendUint64(b, m.Bytes)
			b = binary.LittleEndian.AppendUint32(b, m.LKey)
			b = binary.LittleEndian.AppendUint32(b, m.RKey)
		}
	}
	all := append(views, table...)
	defer runtime.KeepAlive(all)
	return n.g.copy(n.table.Addr(), memory.AddrOf(all), uint64(len(all)))
}

// peer is where the device finds a PE's NicPeer, 0 if it is not reached by the NIC.
func (n *nicSide) peer(pe int) uint64 {
	if n == nil {
		return 0
	}
	return n.peers[pe]
}

// close ends the queues, and gives all back. What an emulated NIC has seen that a real one would not have taken is an error.
func (n *nicSide) close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for i := len(n.undo) - 1; i >= 0; i-- {
		errs = append(errs, n.undo[i]())
	}
	n.undo = nil
	if n.window != nil { // after the NIC, whose thread copies
		errs = append(errs, n.window.Close())
		n.window = nil
	}
	if n.emulated != nil {
		for _, v := range n.emulated.Violations() {
			errs = append(errs, fmt.Errorf("%s was used in a way that no NIC takes: %s", n.name, v))
		}
	}
	return errors.Join(errs...)
}
