// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// A gpuSide is what an Op has on a GPU, where kernels take the steps by themselves
// (native/kernels/ep). Its calls queue one kernel each, on the stream that SetStream named, and
// return at once: without a wait, without an allocation, so that they may be captured into a graph.
// All ranks replay such graphs alike. Addresses that calls name are of memory that the GPU reaches.
//
// What a dispatch brought is counted on the device, at Received. What goes wrong there is told by
// the next call, or by Check: a wait that Options.Timeout ended, ranks that disagree, and
// impossible counts leave the op broken. A *CapError comes from the call that is made when it is
// known, which is carried out all the same.
//
// What cannot be known without waiting is not checked: that a Route is one of this op's, that all
// ranks replay the same one, and, with Weighted, that the Route is that of the last dispatch.
type gpuSide struct {
	op      *Op
	hosts   *hostsSide // nil where loads and stores reach all ranks
	dev     *device.Device
	kernels *kernels
	own     *device.Memory     // what only kernels of this rank look at
	notice  *device.HostMemory // what they tell the host, and a word for the host's questions
	at      struct{ op, progress, slots, weights, packed, packedRows uint64 }

	chooser *launch.Chooser
	stream  *device.Stream // of the calls from now on
	streams map[uint64]*device.Stream
	used    map[*device.Stream]string // the last call whose kernel was launched there
	ends    []end                     // of work on streams that may be gone
	aside   *device.Stream            // the op's own, for what it does besides calls
	dead    uint64                    // ranks that are left out
	epoch   uint32                    // how often that was asked for

	args     device.Args
	sent     sending
	sentDisp dispatchArgs
	sentComb combineArgs
	sentGrid device.Grid
	tokens   int    // of the last dispatch
	weights  bool   // that came with it
	recorded bool   // it went by no routing map
	told     uint64 // the last dispatch whose overflow a caller knows of

	stop, watched chan struct{} // end watch; nil until it began
}

// sending is what was sent and has not been received.
type sending int

const (
	sentNothing sending = iota
	sentDispatch
	sentCombine
)

const (
	answerAt  = 96 // behind Notice: a word that Rows copies to
	hostBytes = 128
	grace     = 10 * time.Second // that a stream gets beyond the wait of a kernel
)

// openGPU makes the buffers. Collective; it fails on all ranks or on none.
func (o *Op) openGPU() (err error) {
	if o.base, err = o.world.MallocAlign(plan.Alignment, o.layout.Size); err != nil {
		return fmt.Errorf("make the buffers of an op: %w", err)
	}
	g := &gpuSide{op: o, dev: o.world.Device(), streams: map[uint64]*device.Stream{}, used: map[*device.Stream]string{}}
	o.gpu = g
	err = g.meet()
	if err == nil && g.hosts != nil {
		err = g.hosts.allocate(o)
	}
	if err == nil {
		err = o.agree(g.open())
	}
	if err == nil {
		return nil
	}
	base := o.base
	o.base, o.gpu = 0, nil
	return errors.Join(fmt.Errorf("make an op on %s: %w", g.dev, err), g.close(), g.hosts.free(o.world), o.world.Free(base))
}

// agree is nil if cause is on all ranks. Nobody leaves before all have come. Collective.
func (o *Op) agree(cause error) error {
	at, err := o.world.MallocHost(8, 8)
	if err != nil {
		return errors.Join(cause, err)
	}
	memory.Store64(at, uint64(flag(cause != nil)))
	err = o.world.TeamWorld().Reduce(shmem.ReduceMax, fabric.Uint64, at, at, 1)
	failed := err == nil && memory.Load64(at) != 0
	err = errors.Join(cause, err, o.world.Free(at))
	if err == nil && failed {
		err = fmt.Errorf("another rank could not: %w", shmem.ErrElsewhere)
	}
	return err
}

func (g *gpuSide) open() (err error) {
	if g.kernels, err = useKernels(g.dev); err != nil {
		return err
	}
	if g.hosts != nil {
		if err := g.kernels.loadHosts(g.hosts.sums()); err != nil {
			return err
		}
	}
	var rules []launch.Rule
	if t := g.op.opts.Tuning; t != nil {
		rules = t.For(g.dev.Name, g.op.cfg.WorldSize)
	}
	g.chooser = launch.NewChooser(g.op.cfg, rules, g.mostBlocks())
	c := &g.op.cfg
	size := uint64(0)
	take := func(bytes int) uint64 {
		at := size
		size += (uint64(bytes) + plan.Alignment - 1) / plan.Alignment * plan.Alignment
		return at
	}
	take(localCounts + c.ExpertsPerRank*plan.Int32Bytes)
	g.at.op, g.at.progress = take(1<<10), take(progressBytes)
	choices := c.MaxNumInpToken * c.TopK
	g.at.slots, g.at.weights = take(choices*plan.Int32Bytes), take(choices*plan.Float32Bytes)
	g.at.packed, g.at.packedRows = take(c.MaxRecv()*c.TopK*plan.Int32Bytes), take(plan.Int32Bytes)
	if h := g.hosts; h != nil {
		h.at, h.progress = take(hostsBytes), take(hostsProgressBytes)
		if h.sums() {
			h.places = take(h.peers(c) * c.MaxNumInpToken * plan.Int32Bytes)
		}
	}
	if g.own, err = g.dev.Alloc(size); err != nil {
		return err
	}
	g.op.own = g.own.Addr()
	if h := g.hosts; h != nil {
		h.at, h.progress = h.at+g.own.Addr(), h.progress+g.own.Addr()
		if h.sums() {
			h.places += g.own.Addr()
		}
	}
	for _, at := range []*uint64{&g.at.op, &g.at.progress, &g.at.slots, &g.at.weights, &g.at.packed, &g.at.packedRows} {
		*at += g.own.Addr()
	}
	if g.notice, err = g.dev.AllocHost(hostBytes); err != nil {
		return err
	}
	clear(memory.Bytes(g.notice.Addr(), hostBytes))
	return g.prepare()
}

// prepare puts flags down, since the memory may have been another op's, and writes what kernels are
// told.
func (g *gpuSide) prepare() error {
	told := g.opBytes(g.limit())
	s, err := g.dev.NewStream(device.Normal)
	if err != nil {
		return err
	}
	g.aside = s
	err = errors.Join(s.Set(g.op.base, 0, g.op.layout.DispatchOut.Offset), s.Set(g.own.Addr(), 0, g.own.Bytes()),
		s.Copy(g.at.op, memory.AddrOf(told), uint64(len(told))))
	var between []byte
	if h := g.hosts; h != nil {
		between = h.bytes(g.op)
		err = errors.Join(err, s.Set(h.base, 0, h.parts.outgoing), s.Copy(h.at, memory.AddrOf(between), uint64(len(between))))
	}
	if err == nil {
		err = g.wait(s)
	}
	runtime.KeepAlive(told)
	runtime.KeepAlive(between)
	g.setStream(0)
	if err == nil {
		g.stop, g.watched = make(chan struct{}), make(chan struct{})
		go g.watch()
	}
	return err
}

// limit is how long a kernel waits, in nanoseconds.
func (g *gpuSide) limit() uint64 {
	if t := g.op.opts.Timeout; t > 0 {
		return uint64(t)
	}
	return math.MaxInt64
}

func (g *gpuSide) close() error {
	g.unwatch()
	var errs []error
	if g.aside != nil {
		errs = append(errs, g.aside.Close())
	}
	if g.own != nil {
		errs = append(errs, g.own.Close())
	}
	if g.notice != nil {
		errs = append(errs, g.notice.Close())
	}
	if g.kernels != nil {
		errs = append(errs, g.kernels.drop())
	}
	return errors.Join(errs...)
}

// rows asks the device how many rows there are.
func (g *gpuSide) rows() (int, error) {
	if err := g.stream.Copy(g.notice.Addr()+answerAt, g.op.Received(), plan.Int32Bytes); err != nil {
		return 0, fmt.Errorf("ask for the number of rows: %w", err)
	}
	if err := g.wait(g.stream); err != nil {
		return 0, fmt.Errorf("ask for the number of rows: %w", err)
	}
	return int(g.word32(answerAt)), g.op.Check()
}
