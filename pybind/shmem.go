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
	"mori/core/logging"
	"mori/shmem"
)

// A pe is what this process is of a World: as OpenSHMEM has it, a process is one PE.
type pe struct {
	*shmem.World
	mapped []bool // which PEs' memory is mapped here: nothing that is asked of these waits
	anyFar bool   // that of some PE is not

	qpPerPE int

	calls   atomic.Int64 // hot ones that are on their way
	closing atomic.Bool  // no more shall begin
	ending  atomic.Bool  // those that wait shall end; finalize itself waits later, and shall not
}

// thePE is this process's, nil before init and after finalize.
var thePE atomic.Pointer[pe]

// callsEnd is how long finalize waits for calls of other threads. Those that wait are asked every 100 ms.
const callsEnd = 3 * time.Second

var errNoPE = coded("E_STATE", errors.New("mori.shmem is not initialised: call shmem_init_attr, shmem_torch_process_group_init, shmem_mpi_init or shmem_init first"))

func current() (*pe, error) {
	if p := thePE.Load(); p != nil {
		return p, nil
	}
	return nil, errNoPE
}

// enter is current for calls that touch symmetric memory, which stays until leave.
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

// ask tells calls that wait whether to go on.
func (p *pe) ask() error {
	if p.ending.Load() {
		return shmem.ErrClosed
	}
	return askPython()
}

// vacate keeps calls out, and waits for those on their way.
func (p *pe) vacate() error {
	p.closing.Store(true)
	p.ending.Store(true)
	defer p.ending.Store(false)
	for begin := time.Now(); p.calls.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > callsEnd {
			p.closing.Store(false)
			return coded("E_STATE", fmt.Errorf("finalize while %d calls of mori.shmem are on their way", p.calls.Load()))
		}
	}
	return nil
}

// ShmemUniqueID makes the id that ranks need to find each other, in hex.
func ShmemUniqueID() (id string, err error) {
	defer guard(&err)
	made, err := bootstrap.NewUniqueID()
	return hex.EncodeToString(made[:]), err
}

// ShmemInitUniqueID starts to join the ranks that have this id, given in hex. JobResult: 0.
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
	return initialise(func(ctx context.Context) (bootstrap.Group, error) {
		return bootstrap.Join(ctx, unique, rank, size, bootstrap.Options{})
	}), nil
}

// ShmemInitFile starts to join the ranks that name the same file. JobResult: 0.
func ShmemInitFile(path string, rank int, size int) (job uint64, err error) {
	defer guard(&err)
	return initialise(func(ctx context.Context) (bootstrap.Group, error) {
		return bootstrap.JoinFile(ctx, path, rank, size, bootstrap.Options{})
	}), nil
}

// ShmemInitLaunched starts to join the ranks that a launcher started with this one; without a launcher this is all. JobResult: 0.
func ShmemInitLaunched() (job uint64, err error) {
	defer guard(&err)
	_, launched, err := bootstrap.Launched()
	if err != nil {
		return 0, err
	}
	return initialise(func(ctx context.Context) (bootstrap.Group, error) {
		if !launched {
			return bootstrap.Local(1)[0], nil
		}
		return bootstrap.JoinLaunched(ctx, bootstrap.Options{})
	}), nil
}

// ShmemLaunched returns what the launcher told this process, as JSON; null if there was none.
func ShmemLaunched() (text string, err error) {
	defer guard(&err)
	launch, ok, err := bootstrap.Launched()
	if err != nil || !ok {
		return "null", err
	}
	return toJSON(launch)
}

// initialise makes this process a PE of the group that join finds. It does nothing if it is one.
func initialise(join func(context.Context) (bootstrap.Group, error)) (job uint64) {
	return collectives.start(func(ctx context.Context) (uint64, error) {
		if thePE.Load() != nil {
			return 0, nil
		}
		cfg, err := shmem.ConfigFromEnv()
		if err != nil {
			return 0, err
		}
		p := &pe{qpPerPE: cfg.QPPerPE}
		cfg.Log, cfg.Interrupt = logging.For("shmem"), p.ask
		group, err := join(ctx)
		if err != nil {
			return 0, err
		}
		w, err := shmem.Init(ctx, group, cfg)
		if err != nil {
			return 0, err
		}
		p.World, p.mapped = w, make([]bool, w.NPEs())
		for i, peer := range w.Describe().Peers {
			p.mapped[i] = peer.Path == "mapped" || peer.Path == "self"
			p.anyFar = p.anyFar || !p.mapped[i]
		}
		thePE.Store(p)
		return 0, nil
	})
}

// ShmemFinalize starts to end what init began. Without it there is nothing to do. Calls of other threads that wait get an error.
// JobResult: 0.
func ShmemFinalize() (job uint64, err error) {
	defer guard(&err)
	return collectives.start(func(ctx context.Context) (uint64, error) {
		p := thePE.Load()
		if p == nil {
			return 0, nil
		}
		busy := settleOps()
		if err := p.vacate(); err != nil {
			return 0, err
		}
		settle(busy)
		thePE.Store(nil)
		teams.clear()
		return 0, p.Finalize(ctx)
	}), nil
}

// ShmemInitialized tells whether this process is a PE.
func ShmemInitialized() bool { return thePE.Load() != nil }

// ShmemMyPE returns this process's number.
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

// ShmemNumQPPerPE returns how many queue pairs a pair of PEs has over RDMA.
func ShmemNumQPPerPE() (n int, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.qpPerPE, nil
}

// ShmemDescribe returns the heap's use and how each PE is reached, as JSON.
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
	logging.For("shmem").Error(text)
	return 0, nil
}

// ShmemDoctor returns what init would do here: how the heap would be made, and what a launcher has told, as JSON.
func ShmemDoctor() (text string, err error) {
	defer guard(&err)
	cfg, err := shmem.ConfigFromEnv()
	if err != nil {
		return "", err
	}
	launcher := "none: this process would be the only PE"
	switch l, ok, err := bootstrap.Launched(); {
	case err != nil:
		launcher = err.Error()
	case ok:
		launcher = fmt.Sprintf("%s: rank %d of %d", l.By, l.Rank, l.Size)
	}
	return toJSON(struct {
		Heap     string `json:"symmetric heap"`
		Bytes    uint64 `json:"bytes per PE"`
		Node     string `json:"node"`
		Timeout  string `json:"time limit of waits"`
		Launcher string `json:"launcher"`
	}{cfg.Mode.String() + " on host memory", cfg.HeapSize, cfg.NodeID, cfg.Timeout.String(), launcher})
}
