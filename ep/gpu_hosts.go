// SPDX-License-Identifier: MIT

package ep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// A hostsSide is what an Op has on a GPU where some ranks are on other hosts: kernels post what
// goes there to the queue of a proxy or, where shmem.Config.NIC names one, of a NIC, from symmetric
// memory to symmetric memory, and wait for flags that come behind it.
// native/include/mori/ep/hosts.hpp says what goes how.
type hostsSide struct {
	network  uint64 // shmem.World.State, which says how each rank is reached
	near     uint64 // a bit for each rank that loads and stores reach
	perHost  int    // ranks of a host, whose numbers follow each other
	forwards bool   // a token goes once to each other host, whose rank of the same place there forwards it

	base  uint64 // of symmetric memory of its own
	parts hostsParts

	at, progress uint64 // in gpuSide.own: Hosts and HostsProgress
	places       uint64 // there: [peers, MaxNumInpToken] numbers; 0 if hosts do not sum
}

// hostsParts is where things are behind hostsSide.base.
type hostsParts struct {
	chunkFlags, rowFlags, asks, outgoing, incoming, rows, sums uint64
	peerBytes, size                                            uint64
}

// What native/include/mori/ep/hosts.hpp has.
const (
	mostChunks         = 64
	headBytes          = 64
	hostsBytes         = 112
	hostsProgressBytes = 3344

	// A put of this length keeps a fast network busy for longer than the next one takes to be
	// written and posted.
	chunkBytes = 2 << 20
)

// sums says whether a host sums what its ranks made of a token before that goes to the token's rank
// on another host. One rank a host has nothing to sum.
func (h *hostsSide) sums() bool { return h != nil && h.forwards && h.perHost > 1 }

// peers are the ranks of other hosts that get records of this one.
func (h *hostsSide) peers(c *Config) int {
	if h.forwards {
		return c.WorldSize/h.perHost - 1
	}
	return c.WorldSize - h.perHost
}

// reach looks which ranks loads and stores reach, and makes hosts if these are not all.
func (g *gpuSide) reach() error {
	c := &g.op.cfg
	if n := c.WorldSize; n > mostRanks {
		return fmt.Errorf("%d ranks, at most %d can be: %w", n, mostRanks, errors.ErrUnsupported)
	}
	if n := c.MaxNumInpToken; n > mostRows {
		return fmt.Errorf("max_num_inp_token_per_rank %d: on GPUs at most %d can be: %w", n, mostRows, errors.ErrUnsupported)
	}
	near, far := uint64(0), -1
	for pe := range c.WorldSize {
		if g.op.world.Ptr(g.op.base, pe) != 0 {
			near |= 1 << pe
		} else if far < 0 {
			far = pe
		}
	}
	if far < 0 {
		return nil
	}
	if !c.KernelType.SpansHosts() {
		return fmt.Errorf("kernel_type %v, and the memory of PE %d is not mapped here, by the GPU of PE %d: %w", c.KernelType, far, c.Rank, errors.ErrUnsupported)
	}
	h := &hostsSide{near: near, perHost: bits.OnesCount64(near), forwards: c.KernelType.Hierarchical()}
	first := c.Rank / h.perHost * h.perHost
	if c.WorldSize%h.perHost != 0 || near>>first != 1<<h.perHost-1 {
		return fmt.Errorf("rank %d of %d reaches ranks %#b by loads and stores: ranks of a host must follow each other, the same number on each: %w",
			c.Rank, c.WorldSize, near, errors.ErrUnsupported)
	}
	if _, ok := g.op.world.Remote(); !ok {
		return fmt.Errorf("kernels of PE %d have no way to PE %d, whose memory is not mapped here: %w", c.Rank, far, errors.Join(g.op.world.RemoteErr(far), errors.ErrUnsupported))
	}
	h.network, g.hosts = g.op.world.State(), h
	return nil
}

// meet has all ranks agree on the number of ranks of a host, or on the error. Collective.
func (g *gpuSide) meet() error {
	cause := g.reach()
	perHost := uint64(g.op.cfg.WorldSize)
	if g.hosts != nil {
		perHost = uint64(g.hosts.perHost)
	}
	at, err := g.op.world.MallocHost(8, 3*8)
	if err != nil {
		return errors.Join(cause, err)
	}
	memory.Store64(at, uint64(flag(cause != nil)))
	memory.Store64(at+8, perHost)
	memory.Store64(at+16, ^perHost)
	err = g.op.world.TeamWorld().Reduce(shmem.ReduceMax, fabric.Uint64, at, at, 3)
	failed, most, least := memory.Load64(at), memory.Load64(at+8), ^memory.Load64(at+16)
	err = errors.Join(cause, err, g.op.world.Free(at))
	switch {
	case err == nil && failed != 0:
		return fmt.Errorf("another rank could not: %w", shmem.ErrElsewhere)
	case err == nil && most != least:
		return fmt.Errorf("hosts have %d to %d ranks that reach each other by loads and stores: %w", least, most, errors.ErrUnsupported)
	}
	return err
}

// allocate makes the symmetric memory. Collective.
func (h *hostsSide) allocate(o *Op) (err error) {
	h.parts = h.plan(&o.cfg, &o.layout, o.opts.chunk())
	if h.base, err = o.world.MallocAlign(plan.Alignment, h.parts.size); err != nil {
		err = fmt.Errorf("make the buffers of an op for rows between hosts: %w", err)
	}
	return err
}

// chunk is how many bytes go to another host at once.
func (o *Options) chunk() int {
	if o.ChunkBytes > 0 {
		return o.ChunkBytes
	}
	return chunkBytes
}

// plan says where things are.
func (h *hostsSide) plan(c *Config, l *Layout, chunk int) (p hostsParts) {
	round := func(n uint64) uint64 { return (n + plan.Alignment - 1) / plan.Alignment * plan.Alignment }
	far := c.WorldSize - h.perHost
	peers, served := h.peers(c), 1
	if h.forwards {
		served = h.perHost
	}
	tokens := uint64(c.MaxNumInpToken)
	row := uint64(c.HiddenDim) * uint64(c.MaxTokenTypeSize)
	record := round(row) + uint64(served+1)*plan.Int32Bytes + 2*l.WeightBytes() + l.ScaleBytes() + 16
	least := (tokens + mostChunks - 1) / mostChunks * record
	// The last chunk may have room that tokens do not fill.
	p.peerBytes = round(tokens*record + min(max(least, uint64(chunk)), tokens*record) + mostChunks*headBytes)
	at := uint64(0)
	take := func(n uint64) (begin uint64) {
		begin, at = at, at+round(n)
		return begin
	}
	p.chunkFlags, p.rowFlags = take(uint64(peers)*mostChunks*8), take(uint64(far)*mostChunks*8)
	p.asks = take(2 * uint64(c.WorldSize) * plan.LineBytes)
	p.outgoing, p.incoming = take(uint64(peers)*p.peerBytes), take(uint64(peers)*p.peerBytes)
	rows := tokens * uint64(min(far, c.TopK))
	inward := round(rows*row) + round(rows*uint64(l.ScaleBlocks)*plan.Float32Bytes) + rows*l.WeightBytes()
	if h.sums() {
		sums := uint64(peers) * tokens * (row + l.WeightBytes() + 2*16)
		p.sums, inward = take(sums), max(inward, sums)
	}
	p.rows = take(inward)
	p.size = at
	return p
}

// bytes are Hosts.
func (h *hostsSide) bytes(o *Op) (b []byte) {
	word := func(values ...uint64) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	off := h.base - o.base // may be below 0; kernels add it
	p := &h.parts
	word(h.network, h.progress, h.near)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.perHost))
	b = binary.LittleEndian.AppendUint32(b, flag(h.forwards))
	word(off+p.chunkFlags, off+p.rowFlags, off+p.asks, off+p.outgoing, off+p.incoming, p.peerBytes, off+p.rows, off+p.sums, h.places)
	b = binary.LittleEndian.AppendUint32(b, uint32(o.layout.ScaleBytes()))
	return binary.LittleEndian.AppendUint32(b, uint32(o.opts.chunk()))
}

// free gives the symmetric memory back. Collective.
func (h *hostsSide) free(w *shmem.World) error {
	if h == nil || h.base == 0 {
		return nil
	}
	base := h.base
	h.base = 0
	return w.Free(base)
}

// act is what a wait for the word at an address was about.
func (h *hostsSide) act(at uint64) string {
	if h == nil || at < h.base || at >= h.base+h.parts.outgoing {
		return ""
	}
	switch {
	case at-h.base < h.parts.rowFlags:
		return "records of dispatch"
	case at-h.base < h.parts.asks:
		return "rows of combine"
	}
	return "routing of combine"
}
