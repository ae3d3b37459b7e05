// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"

	"mori/core/device"
	"mori/ep/internal/plan"
	"mori/native/abi"
)

// buffers is the memory of an op on a GPU.
type buffers struct {
	base   uint64         // of the layout, in symmetric memory; 0 when the op is closed
	own    *device.Memory // of this GPU, for kernels of this rank alone
	at     addresses
	notice notice
}

// addresses are those of the parts of buffers.own.
type addresses struct {
	received             uint64 // plan.ReceivedWord and plan.LocalCounts count from here
	op, progress         uint64 // Op and Progress of kernels
	slots, weights       uint64 // of the last dispatch: its routing map and its weights
	packed, packedRows   uint64 // of the last pack: slot of each choice, and number of rows
	hosts, hostsProgress uint64 // Hosts and HostsProgress of kernels, if there are several hosts
	places               uint64 // [peers, MaxNumInpToken] numbers, if hosts sum
}

// allocate makes the memory of this rank. h may be nil.
func (b *buffers) allocate(dev *device.Device, c *plan.Config, h *hosts) (err error) {
	type part struct {
		at    *uint64
		bytes int
	}
	choices := c.MaxNumInpToken * c.TopK
	parts := []part{
		{&b.at.received, int(c.OwnBytes())},
		{&b.at.op, abi.EPOpBytes}, {&b.at.progress, abi.EPProgressBytes},
		{&b.at.slots, choices * plan.Int32Bytes}, {&b.at.weights, choices * plan.Float32Bytes},
		{&b.at.packed, c.MaxRecv() * c.TopK * plan.Int32Bytes}, {&b.at.packedRows, plan.Int32Bytes},
	}
	if h != nil {
		parts = append(parts, part{&b.at.hosts, abi.EPHostsBytes}, part{&b.at.hostsProgress, abi.EPHostsProgressBytes})
	}
	if h.sums() {
		parts = append(parts, part{&b.at.places, h.peers(c) * c.MaxNumInpToken * plan.Int32Bytes})
	}
	size := uint64(0)
	for _, p := range parts {
		*p.at = size
		size += round(uint64(p.bytes))
	}
	if b.own, err = dev.Alloc(size); err != nil {
		return err
	}
	for _, p := range parts {
		*p.at += b.own.Addr()
	}
	return b.notice.allocate(dev)
}

// round returns n rounded up to plan.Alignment.
func round(n uint64) uint64 { return (n + plan.Alignment - 1) / plan.Alignment * plan.Alignment }

func (b *buffers) free() error {
	var err error
	if b.own != nil {
		err = b.own.Close()
	}
	return errors.Join(err, b.notice.free())
}

// Base returns the address of the layout in symmetric memory, 0 after Close.
func (b *buffers) Base() uint64 { return b.base }

// Received returns the address of the int32 with the number of received rows, on the GPU.
func (b *buffers) Received() uint64 { return b.at.received + plan.ReceivedWord }

// LocalCounts returns the address of the int32 [ExpertsPerRank] that CountLocal fills, on the GPU.
func (b *buffers) LocalCounts() uint64 { return b.at.received + plan.LocalCounts }
