// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"mori/core/bootstrap"
	"mori/core/bootstrap/launcher"
	"mori/core/device"
	"mori/core/logging"
	"mori/shmem"
)

// A pe is the PE of this process, or of one of its threads, in a World.
type pe struct {
	*shmem.World
	mapped []bool // by PE: its memory is mapped for CPU loads and stores, so calls to it do not wait
	anyFar bool   // whether any PE's memory is not mapped

	thread, rank int // the thread that called init, and its rank, -1 if init must find it
	jobs         queue
	qpPerPE      int
	device       *device.Device // of the heap; nil: host memory

	calls   atomic.Int64 // hot calls in progress
	closing atomic.Bool  // no new calls may begin
	ending  atomic.Bool  // waiting calls must end; finalize resets it before its own waits
}

// callsEnd is how long finalize waits for calls of other threads. Waiting calls check for it every
// 100 ms.
const callsEnd = 3 * time.Second

// enter is current for calls that access symmetric memory, which stays valid until leave.
func enter() (*pe, error) {
	p, err := current()
	if err != nil {
		return nil, err
	}
	if p.calls.Add(1); p.closing.Load() {
		p.leave()
		return nil, errNoPE
	}
	return p, nil
}

func (p *pe) leave() { p.calls.Add(-1) }

// ask returns an error if waiting calls must end.
func (p *pe) ask() error {
	if p.ending.Load() {
		return shmem.ErrClosed
	}
	return askPython()
}

// vacate rejects new calls and waits until those in progress have ended.
func (p *pe) vacate() error {
	p.closing.Store(true)
	p.ending.Store(true)
	defer p.ending.Store(false)
	for begin := time.Now(); p.calls.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > callsEnd {
			p.closing.Store(false)
			return coded("E_STATE", fmt.Errorf("finalize while %d calls of mori.shmem are in progress", p.calls.Load()))
		}
	}
	return nil
}

// ShmemUniqueID creates the id that ranks need to find each other, in hex.
func ShmemUniqueID() (id string, err error) {
	defer guard(&err)
	made, err := bootstrap.NewUniqueID()
	return hex.EncodeToString(made[:]), err
}

// ShmemInitUniqueID starts to join the ranks with this id, given in hex. JobResult: 0.
func ShmemInitUniqueID(id string, rank int, size int) (job uint64, err error) {
	defer guard(&err)
	raw, err := hex.DecodeString(id)
	if err != nil {
		return 0, coded("E_ARG", err)
	}
	unique, err := bootstrap.ParseUniqueID(raw)
	if err != nil {
		return 0, err
	}
	return initialise(rank, func(ctx context.Context) (bootstrap.Group, error) {
		return bootstrap.Join(ctx, unique, rank, size, bootstrap.Options{})
	})
}

// ShmemInitFile starts to join the ranks that name the same file. JobResult: 0.
func ShmemInitFile(path string, rank int, size int) (job uint64, err error) {
	defer guard(&err)
	return initialise(rank, func(ctx context.Context) (bootstrap.Group, error) {
		return bootstrap.JoinFile(ctx, path, rank, size, bootstrap.Options{})
	})
}

// ShmemInitLaunched starts to join the ranks that a launcher started with this one. Without a
// launcher, this process is the only rank. JobResult: 0.
func ShmemInitLaunched() (job uint64, err error) {
	defer guard(&err)
	_, launched, err := launcher.Find()
	if err != nil {
		return 0, err
	}
	return initialise(-1, func(ctx context.Context) (bootstrap.Group, error) {
		if !launched {
			return bootstrap.Local(1)[0], nil
		}
		return bootstrap.JoinLaunched(ctx, bootstrap.Options{})
	})
}

// ShmemLaunched returns the settings of the launcher for this process, as JSON; null without a
// launcher.
func ShmemLaunched() (text string, err error) {
	defer guard(&err)
	launch, ok, err := launcher.Find()
	if err != nil || !ok {
		return "null", err
	}
	return toJSON(launch)
}

// initialise makes this process, or this thread of it, a PE of the group that join finds, unless it
// already is one. rank is its number, -1 if join determines it. initialise reads the environment's
// and the thread's choice of GPU now, not in the job.
func initialise(rank int, join func(context.Context) (bootstrap.Group, error)) (job uint64, err error) {
	p, made := members.claim(rank)
	if !made {
		return p.jobs.start(func(context.Context) (uint64, error) {
			if p.World == nil {
				return 0, coded("E_STATE", errors.New("the init that was in progress has failed"))
			}
			return 0, nil
		}), nil
	}
	cfg, err := shmem.ConfigFromEnv()
	if err != nil {
		members.leave(p)
		return 0, err
	}
	return p.jobs.start(func(ctx context.Context) (uint64, error) {
		err := p.open(ctx, cfg, join)
		if err != nil {
			members.leave(p)
			return 0, err
		}
		modules.refill(p.World)
		members.publish()
		return 0, nil
	}), nil
}

func (p *pe) open(ctx context.Context, cfg shmem.Config, join func(context.Context) (bootstrap.Group, error)) error {
	p.qpPerPE, p.device = cfg.QPPerPE, cfg.Device
	cfg.Log, cfg.Interrupt = logging.For("shmem"), p.ask
	group, err := join(ctx)
	if err != nil {
		return err
	}
	w, err := shmem.Init(ctx, group, cfg)
	if err != nil {
		return err
	}
	p.mapped = make([]bool, w.NPEs())
	for i, peer := range w.Describe().Peers {
		p.mapped[i] = cfg.Device == nil && (peer.Path == "mapped" || peer.Path == "self")
		p.anyFar = p.anyFar || !p.mapped[i]
	}
	members.mu.Lock()
	p.World = w
	members.mu.Unlock()
	return nil
}

// ShmemFinalize starts to undo init. Without init it does nothing. Waiting calls of other threads
// fail. JobResult: 0.
func ShmemFinalize() (job uint64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return idle.start(func(context.Context) (uint64, error) { return 0, nil }), nil
	}
	return p.jobs.start(func(ctx context.Context) (uint64, error) {
		if p.closing.Load() {
			return 0, nil
		}
		busy := settleOps(p)
		if err := p.vacate(); err != nil {
			return 0, err
		}
		settle(busy)
		if members.leave(p) {
			teams.Clear()
		}
		return 0, p.Finalize(ctx)
	}), nil
}

// ShmemInitialized reports whether this process, or this thread if it has several PEs, is a PE.
func ShmemInitialized() bool {
	_, err := current()
	return err == nil
}

// ShmemMyPE returns the number of this process's PE.
func ShmemMyPE() (n int, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.MyPE(), nil
}

// ShmemNPEs returns the number of PEs.
func ShmemNPEs() (n int, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.NPEs(), nil
}

// ShmemNumQPPerPE returns the number of RDMA queue pairs per pair of PEs.
func ShmemNumQPPerPE() (n int, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.qpPerPE, nil
}

// ShmemDescribe returns the heap's usage and how each PE is reached, as JSON.
func ShmemDescribe() (text string, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return "", err
	}
	return toJSON(p.Describe())
}

// ShmemLog writes an error to the log of mori.shmem.
func ShmemLog(text string) (n int, err error) {
	defer guard(&err)
	logging.Answer("shmem", text)
	return 0, nil
}

// ShmemDoctor returns how init would create the heap here, and the settings of the launcher, as
// JSON.
func ShmemDoctor() (text string, err error) {
	defer guard(&err)
	cfg, err := shmem.ConfigFromEnv()
	if err != nil {
		return "", err
	}
	found := "none: this process would be the only PE"
	switch l, ok, err := launcher.Find(); {
	case err != nil:
		found = err.Error()
	case ok:
		found = fmt.Sprintf("%s: rank %d of %d", l.By, l.Rank, l.Size)
	}
	return toJSON(struct {
		Heap     string `json:"symmetric heap"`
		Bytes    uint64 `json:"bytes per PE"`
		Node     string `json:"node"`
		Timeout  string `json:"time limit of waits"`
		Launcher string `json:"launcher"`
	}{cfg.Mode.String() + " on " + where(cfg.Device), cfg.HeapSize, cfg.NodeID, cfg.Timeout.String(), found})
}

// where names the owner of the heap's memory.
func where(d *device.Device) string {
	if d == nil {
		return "host memory"
	}
	return d.String()
}

// collective starts a call that all PEs make.
func collective(call func(*pe) (uint64, error)) (job uint64, err error) {
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.jobs.start(func(context.Context) (uint64, error) {
		if p.closing.Load() {
			return 0, errNoPE
		}
		return call(p)
	}), nil
}

// ShmemMalloc starts to allocate size bytes on every PE. JobResult: the address.
func ShmemMalloc(size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return p.Malloc(size) })
}

// ShmemMallocAlign is ShmemMalloc at a multiple of align.
func ShmemMallocAlign(align uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return p.MallocAlign(align, size) })
}

// ShmemCalloc is ShmemMalloc of count zeroed elements.
func ShmemCalloc(count uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return p.Calloc(count, size) })
}

// ShmemFree starts to free memory that ShmemMalloc returned. JobResult: 0.
func ShmemFree(addr uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return 0, p.Free(addr) })
}

// ShmemRegister starts to make size bytes at addr accessible to all PEs. The caller still owns
// them. JobResult: 0.
func ShmemRegister(addr uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return 0, p.RegisterBuffer(addr, size) })
}

// ShmemDeregister starts to undo ShmemRegister. JobResult: 0.
func ShmemDeregister(addr uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return 0, p.DeregisterBuffer(addr, size) })
}

// ShmemPtr returns the address of a PE's copy of a symmetric address in this process, 0 if it is
// not mapped here.
func ShmemPtr(addr uint64, target int) (at uint64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.Ptr(addr, target), nil
}
