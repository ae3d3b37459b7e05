// SPDX-License-Identifier: MIT

package gpunic

import (
	"errors"
	"fmt"

	"mori/core/gpunic/mlx5"
	"mori/native/abi"
)

// emulatedAckTimeout is 2.1 s (4.096 us << 19). An emulated NIC loses no packets, but its threads
// wait for a core. With 20 threads on 2 cores the default of 0.27 s with 8 tries was too short once
// in 100,000 rounds of the interchange.
const emulatedAckTimeout = 19

// A QueueConfig is the size of a queue.
type QueueConfig struct {
	Log         uint32 // 1<<Log send entries; mlx5 counts blocks of 64 bytes
	ReceivesLog uint32 // 1<<ReceivesLog receive entries; 0 is no receive queue. mlx5 only
}

// A Queue is a queue pair whose rings kernels write, from Connect until the NIC is closed.
type Queue struct {
	nic   *NIC
	queue *mlx5.Queue
	log   uint32
}

// NewQueue makes a queue in memory of the Environment. The NIC's Close closes it.
func (n *NIC) NewQueue(cfg QueueConfig) (*Queue, error) {
	c := mlx5.QueueConfig{SQLog: n.family.blocksLog(cfg.Log), CQLog: cfg.Log, RQLog: cfg.ReceivesLog}
	if n.family.annex != nil && cfg.ReceivesLog > 0 {
		return nil, fmt.Errorf("create a receive queue on %s: mori has none for %s: %w",
			n.name, n.family.name, errors.ErrUnsupported)
	}
	addr, free, err := n.env.Words(c.Bytes())
	if err != nil {
		return nil, fmt.Errorf("make a queue on %s: %w", n.name, err)
	}
	n.later(free)
	c.Addr = addr
	q, err := n.device.NewQueue(c)
	if err != nil {
		return nil, err
	}
	n.later(q.Close)
	return &Queue{nic: n, queue: q, log: cfg.Log}, nil
}

// QPN returns the number of the queue pair.
func (q *Queue) QPN() uint32 { return q.queue.QPN() }

// End returns the bytes for the peer's Connect.
func (q *Queue) End() []byte {
	b := make([]byte, mlx5.RemoteEndBytes)
	q.queue.End().Put(b)
	return b
}

// Connect connects the queue to the peer that returned end from End. The peer must do the same.
func (q *Queue) Connect(end []byte) error {
	var e mlx5.RemoteEnd
	if err := e.Parse(end); err != nil {
		return fmt.Errorf("read the peer's end of a queue: %w", err)
	}
	var path mlx5.PathConfig
	if q.nic.emulated != nil {
		path.AckTimeout = emulatedAckTimeout
	}
	return q.queue.Connect(e, path)
}

// View returns the queue as kernels see it before the first entry: mori::nic::Queue of
// native/include/mori/nic/queue.hpp, with its Annex for families that have one. The caller copies
// it, aligned to 64 bytes, to memory that kernels can access.
func (q *Queue) View() []byte {
	v := q.queue.View()
	annex := q.nic.family.annex
	if annex == nil {
		return abi.Bytes(&v)
	}
	v.SQLog, v.DBR, v.Provider = q.log, 0, uint32(q.nic.family.provider)
	a := annex(q.queue, &v)
	return append(abi.Bytes(&v), abi.Bytes(&a)...)
}

// ReceiveView returns the host addresses of the receive queue. All are zero if it has none.
func (q *Queue) ReceiveView() mlx5.ReceiveView { return q.queue.ReceiveView() }
