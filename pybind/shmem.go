// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"encoding/hex"
	"errors"
	"sync/atomic"

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
}

// thePE is this process's, nil before init and after finalize.
var thePE atomic.Pointer[pe]

var errNoPE = coded("E_STATE", errors.New("mori.shmem is not initialised: call shmem_init_attr, shmem_torch_process_group_init, shmem_mpi_init or shmem_init first"))

func current() (*pe, error) {
	if p := thePE.Load(); p != nil {
		return p, nil
	}
	return nil, errNoPE
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
		cfg.Log, cfg.Interrupt = logging.For("shmem"), askPython
		group, err := join(ctx)
		if err != nil {
			return 0, err
		}
		w, err := shmem.Init(ctx, group, cfg)
		if err != nil {
			return 0, err
		}
		p := &pe{World: w, mapped: make([]bool, w.NPEs()), qpPerPE: cfg.QPPerPE}
		for i, peer := range w.Describe().Peers {
			p.mapped[i] = peer.Path == "mapped" || peer.Path == "self"
			p.anyFar = p.anyFar || !p.mapped[i]
		}
		thePE.Store(p)
		return 0, nil
	})
}

// ShmemFinalize starts to end what init began. Without it there is nothing to do. JobResult: 0.
func ShmemFinalize() (job uint64, err error) {
	defer guard(&err)
	return collectives.start(func(ctx context.Context) (uint64, error) {
		p := thePE.Swap(nil)
		if p == nil {
			return 0, nil
		}
		settleOps()
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
