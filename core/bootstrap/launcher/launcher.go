// SPDX-License-Identifier: MIT

// Package launcher reads what the program that started this process says about its ranks: torchrun,
// Ray Train, Open MPI's and MPICH's mpirun and Slurm's srun by their variables, and the variables
// MORI_RANK, MORI_WORLD_SIZE and MORI_BOOTSTRAP.
package launcher

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"mori/core/config"
)

// MaxSize is the most ranks of a launch.
const MaxSize = 1 << 16

// A Launch is what the program that started this process says about it.
type Launch struct {
	By   string `json:"by"` // the launcher
	Rank int    `json:"rank"`
	Size int    `json:"size"`

	LocalRank int `json:"local_rank"` // among the ranks of this host; -1: unknown
	LocalSize int `json:"local_size"` // how many there are; 0: unknown

	Host       string `json:"host"`  // where rank 0 runs; "": unknown
	Rendezvous string `json:"place"` // MORI_BOOTSTRAP: host:port of rank 0, or a path

	run []string // variables that the launcher sets alike for all ranks of this run, and for no other run
}

// Find is how this process was started, and whether a launcher is recognised at all. The error
// names the variables that are half set or contradict each other.
//
// If several launchers have left variables, the innermost counts: MORI_RANK and MORI_WORLD_SIZE are
// set on purpose, so they come first; then RANK and WORLD_SIZE, since torchrun is often started by
// mpirun or srun, one for each host, and hardly ever the other way round; then Open MPI's and
// Hydra's, since mpirun starts its ranks through srun in a Slurm job; then Slurm's.
func Find() (Launch, bool, error) { return Parse(config.Get) }

// An env is variables of the environment, and the mistakes found in them.
type env struct {
	get  func(string) string
	errs []error
}

// number reads a variable within 0..limit-1; unset is def.
func (e *env) number(name string, limit, def int) int {
	v := strings.TrimSpace(e.get(name))
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n >= limit {
		e.errs = append(e.errs, fmt.Errorf("%s=%q: want a number from 0 to %d", name, v, limit-1))
		return def
	}
	return n
}

// A dialect is the names of one launcher's variables.
type dialect struct {
	by                              string
	rank, size, localRank, localLen string
	run                             []string
}

var (
	dialectMORI = dialect{by: "MORI_RANK", rank: config.BootstrapRank, size: config.BootstrapSize}

	// Ray Train sets the same variables.
	dialectTorch = dialect{
		by: "torchrun", rank: "RANK", size: "WORLD_SIZE", localRank: "LOCAL_RANK", localLen: "LOCAL_WORLD_SIZE",
		run: []string{"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
	}
	dialectOpenMPI = dialect{
		by: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", localRank: "OMPI_COMM_WORLD_LOCAL_RANK", localLen: "OMPI_COMM_WORLD_LOCAL_SIZE",
		run: []string{"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_precondition_transports"},
	}
	dialectHydra = dialect{by: "Hydra", rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localLen: "MPI_LOCALNRANKS"}
	dialectSlurm = dialect{
		by: "srun", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", localRank: "SLURM_LOCALID",
		run: []string{"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_PORT"},
	}
)

// Parse is Find in an environment whose variables get returns.
func Parse(get func(string) string) (Launch, bool, error) {
	e := &env{get: get}
	for _, d := range []dialect{dialectMORI, dialectTorch, dialectOpenMPI, dialectHydra, dialectSlurm} {
		if d.by == dialectSlurm.by {
			if !inStep(get) {
				continue
			}
			if get(d.size) == "" {
				d.size = "SLURM_NTASKS"
			}
		}
		if get(d.rank) == "" && get(d.size) == "" {
			continue
		}
		l := e.launch(d)
		if len(e.errs) > 0 {
			return Launch{}, false, fmt.Errorf("launched by %s: %w", d.by, errors.Join(e.errs...))
		}
		return l, true, nil
	}
	return Launch{}, false, nil
}

// launch reads d's variables.
func (e *env) launch(d dialect) Launch {
	for _, pair := range [][2]string{{d.rank, d.size}, {d.size, d.rank}} {
		if e.get(pair[0]) == "" {
			e.errs = append(e.errs, fmt.Errorf("%s is set and %s is not", pair[1], pair[0]))
			return Launch{}
		}
	}
	l := Launch{By: d.by, Rendezvous: strings.TrimSpace(e.get(config.BootstrapPlace))}
	if l.Size = e.number(d.size, MaxSize+1, 0); l.Size == 0 {
		e.errs = append(e.errs, fmt.Errorf("%s=%q: no ranks", d.size, e.get(d.size)))
		return l
	}
	l.Rank, l.LocalRank, l.LocalSize = e.number(d.rank, l.Size, 0), -1, 0
	if d.localLen != "" {
		l.LocalSize = e.number(d.localLen, l.Size+1, 0)
	}
	if d.by == dialectSlurm.by {
		l.LocalSize, l.Host = e.slurm(l.Size)
	}
	if d.localRank != "" {
		limit := l.Size
		if l.LocalSize > 0 {
			limit = l.LocalSize
		}
		l.LocalRank = e.number(d.localRank, limit, -1)
	}
	if d.by == dialectTorch.by {
		l.Host = strings.TrimSpace(e.get("MASTER_ADDR"))
		e.number("MASTER_PORT", 1<<16, 0)
	}
	for _, name := range d.run {
		l.run = append(l.run, name+"="+e.get(name))
	}
	if err := checkRendezvous(l.Rendezvous); err != nil {
		e.errs = append(e.errs, err)
	}
	return l
}

// checkRendezvous wants host:port or a path, which has a slash.
func checkRendezvous(at string) error {
	if at == "" || strings.Contains(at, "/") {
		return nil
	}
	host, port, err := net.SplitHostPort(at)
	if n, e := strconv.Atoi(port); err != nil || host == "" || e != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%s=%q: want host:port, or a path with a slash", config.BootstrapPlace, at)
	}
	return nil
}
