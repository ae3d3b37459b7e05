// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
	"runtime"

	"mori/core/device"
	"mori/core/gpunic"
	"mori/core/gpunic/mlx5"
	"mori/core/memory"
	"mori/native/abi"
	"mori/shmem/internal/access"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// A nicSide is a NIC whose queues kernels post to directly, with one queue for each PE that loads
// and stores do not reach.
type nicSide struct {
	g      *access.GPU
	nic    *gpunic.NIC
	heap   abi.NICMemory
	queues []*gpunic.Queue // by PE
	table  *device.Memory
	peers  []uint64 // addresses of NicPeer, by PE
}

// A nicName is what a PE sends to the others about its NIC.
type nicName struct {
	Name   string
	Ends   [][]byte // end of the queue for each PE
	Memory abi.NICMemory
}

const nicLog = 8 // log2 of the blocks of a queue

// gpuEnvironment is a GPU whose kernels drive a NIC.
type gpuEnvironment struct{ dev *device.Device }

func (e gpuEnvironment) Words(n uint64) (addr uint64, free func() error, err error) {
	m, err := e.dev.AllocHost(n)
	if err != nil {
		return 0, nil, err
	}
	if m.DeviceAddr() != m.Addr() {
		err := fmt.Errorf("%s maps host memory at other addresses than the host: %w", e.dev, errors.ErrUnsupported)
		return 0, nil, errors.Join(err, m.Close())
	}
	clear(memory.Bytes(m.Addr(), n))
	return m.Addr(), m.Close, nil
}

func (e gpuEnvironment) Window(addr, n uint64) (gpunic.Window, error) {
	return e.dev.NewWindow(addr, n)
}

// openNIC opens the NIC with that name, registers a block of the heap, and creates a queue for each
// PE in far. It fills offer with what those PEs need to connect.
func openNIC(g *access.GPU, name string, b *heap.Block, npes int, far []int, offer *nicName) (_ *nicSide, err error) {
	n := &nicSide{g: g, queues: make([]*gpunic.Queue, npes), peers: make([]uint64, npes)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open NIC %s for kernels: %w", name, err), n.close())
		}
	}()
	if n.nic, err = gpunic.Open(name, gpuEnvironment{g.Device}); err != nil {
		return nil, err
	}
	if n.nic.Provider() != abi.NICProviderMLX5 {
		return nil, fmt.Errorf("kernels of symmetric memory support mlx5 queues only: %w", errors.ErrUnsupported)
	}
	rights := mlx5.AccessLocalWrite | mlx5.AccessRemoteWrite | mlx5.AccessRemoteRead
	if n.heap, err = n.nic.Register(b.Base, b.Have(), rights); err != nil {
		return nil, err
	}
	offer.Name, offer.Memory, offer.Ends = name, n.heap, make([][]byte, npes)
	for _, pe := range far {
		if n.queues[pe], err = n.nic.NewQueue(gpunic.QueueConfig{Log: nicLog}); err != nil {
			return nil, err
		}
		offer.Ends[pe] = n.queues[pe].End()
	}
	return n, nil
}

// connect connects the queues to those of the PEs and copies their views to the device. proxy is
// the queue for operations that the NIC does not support.
func (n *nicSide) connect(me int, names []nicName, proxy uint64) (err error) {
	views, table := make([]abi.NICQueue, len(names)), make([]abi.ShmemNICPeer, len(names))
	tableAt := uint64(len(names) * abi.NICQueueBytes)
	if n.table, err = n.g.Device.Alloc(tableAt + uint64(len(names)*abi.ShmemNICPeerBytes)); err != nil {
		return access.NoMemory(err)
	}
	for pe, q := range n.queues {
		if q == nil {
			continue
		}
		its := &names[pe]
		if me >= len(its.Ends) || its.Memory.Bytes != n.heap.Bytes {
			return fmt.Errorf("PE %d registered %d bytes with NICs, and %d queues: %w", pe, its.Memory.Bytes, len(its.Ends), peers.ErrMismatch)
		}
		if err := q.Connect(its.Ends[me]); err != nil {
			return fmt.Errorf("connect to PE %d: %w", pe, err)
		}
		copy(abi.Bytes(&views[pe]), q.View())
		n.peers[pe] = n.table.Addr() + tableAt + uint64(pe*abi.ShmemNICPeerBytes)
		table[pe] = abi.ShmemNICPeer{
			Queue: n.table.Addr() + uint64(pe*abi.NICQueueBytes), Proxy: proxy, Mine: n.heap, Theirs: its.Memory,
		}
	}
	all := append(abi.SliceBytes(views), abi.SliceBytes(table)...)
	defer runtime.KeepAlive(all)
	return n.g.Copy(n.table.Addr(), memory.AddrOf(all), uint64(len(all)))
}

// peer returns the device address of a PE's NicPeer, 0 if the NIC does not reach that PE.
func (n *nicSide) peer(pe int) uint64 {
	if n == nil {
		return 0
	}
	return n.peers[pe]
}

// close closes the NIC with its queues and frees the device's table.
func (n *nicSide) close() error {
	if n == nil {
		return nil
	}
	var err error
	if n.table != nil {
		err = n.table.Close()
		n.table = nil
	}
	return errors.Join(err, n.nic.Close())
}
