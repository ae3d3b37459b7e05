// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
	"math/bits"

	"mori/ep/internal/plan"
	"mori/native/abi"
	"mori/shmem"
)

// hostsBlocks is how many blocks the cost model may suggest between hosts: the network is slower
// than 32 blocks, and its copy kernels run beside them.
const hostsBlocks = 32

// hosts is what an op needs if some ranks are on other hosts. Kernels post to the queue of a proxy
// or, if shmem.Config.NIC names one, of a NIC, from symmetric memory to symmetric memory. They wait
// for flags that arrive behind the data. native/include/mori/ep/hosts.hpp has the protocol.
//
// A nil *hosts is that of an op whose ranks all reach each other by loads and stores.
type hosts struct {
	network      uint64 // shmem.World.State: how each rank is reached
	near         uint64 // a bit for each rank that loads and stores reach
	perHost      int    // ranks of a host, whose numbers follow each other
	hierarchical bool   // a token is sent once to each other host, and forwarded there

	records records
}

// findHosts finds out which ranks loads and stores reach from here. It returns nil if they reach
// all. base is the op's symmetric memory.
func findHosts(w *shmem.World, c *plan.Config, base uint64) (*hosts, error) {
	if n := c.WorldSize; n > abi.EPMostRanks {
		return nil, fmt.Errorf("%d ranks, want at most %d: %w", n, abi.EPMostRanks, errors.ErrUnsupported)
	}
	if n := c.MaxNumInpToken; n > mostRows {
		return nil, fmt.Errorf("max_num_inp_token_per_rank %d: want at most %d on GPUs: %w",
			n, mostRows, errors.ErrUnsupported)
	}
	near, far := uint64(0), -1
	for pe := range c.WorldSize {
		if w.Ptr(base, pe) != 0 {
			near |= 1 << pe
		} else if far < 0 {
			far = pe
		}
	}
	if far < 0 {
		return nil, nil
	}
	if !c.KernelType.SpansHosts() {
		return nil, fmt.Errorf("kernel_type %v needs mapped memory, but the GPU of PE %[3]d does not map that of PE %[2]d: %[4]w",
			c.KernelType, far, c.Rank, errors.ErrUnsupported)
	}
	h := &hosts{near: near, perHost: bits.OnesCount64(near), hierarchical: c.KernelType.Hierarchical()}
	first := c.Rank / h.perHost * h.perHost
	if c.WorldSize%h.perHost != 0 || near>>first != 1<<h.perHost-1 {
		return nil, fmt.Errorf("rank %d of %d reaches ranks %#b by loads and stores: "+
			"ranks of a host must be consecutive, and each host must have the same number: %w",
			c.Rank, c.WorldSize, near, errors.ErrUnsupported)
	}
	if _, ok := w.Remote(); !ok {
		return nil, fmt.Errorf("kernels of PE %d cannot reach PE %d, whose memory is not mapped: %w",
			c.Rank, far, errors.Join(w.RemoteErr(far), errors.ErrUnsupported))
	}
	h.network = w.State()
	return h, nil
}

// sums reports whether a host sums what its ranks made of a token before the row is sent to the
// token's rank on another host. With one rank a host there is nothing to sum.
func (h *hosts) sums() bool { return h != nil && h.hierarchical && h.perHost > 1 }

// peers returns how many ranks of other hosts get records of this one.
func (h *hosts) peers(c *plan.Config) int {
	if h.hierarchical {
		return c.WorldSize/h.perHost - 1
	}
	return c.WorldSize - h.perHost
}

// perHostOf returns how many ranks are on a host.
func (h *hosts) perHostOf(c *plan.Config) int {
	if h == nil {
		return c.WorldSize
	}
	return h.perHost
}

// kernelHosts returns the Hosts of kernels. The records lie at an offset from the op's memory,
// modulo 2^64.
func (h *hosts) kernelHosts(s *Side) abi.EPHosts {
	r, off := &h.records, h.records.base-s.base
	return abi.EPHosts{
		Network: h.network, Progress: s.at.hostsProgress, Near: h.near, PerHost: uint32(h.perHost),
		Hierarchical: flag(h.hierarchical), ChunkFlags: off + r.chunkFlags, RowFlags: off + r.rowFlags,
		Requests: off + r.requests, Outgoing: off + r.outgoing, Incoming: off + r.incoming,
		PeerBytes: r.peerBytes, Rows: off + r.rows, Sums: off + r.sums, Places: s.at.places,
		ScaleBytes: uint32(s.layout.ScaleBytes()), ChunkBytes: uint32(s.opts.chunk()),
	}
}

// act returns the part of a call that waits for the word at an address, or "" if the word is not
// among those of hosts.
func (h *hosts) act(at uint64) string {
	if h == nil || at < h.records.base || at >= h.records.base+h.records.outgoing {
		return ""
	}
	switch off := at - h.records.base; {
	case off < h.records.rowFlags:
		return "records of dispatch"
	case off < h.records.requests:
		return "rows of combine"
	}
	return "routing of combine"
}
