// SPDX-License-Identifier: MIT

// Package launchertest has environments as launchers make them.
package launchertest

import (
	"maps"
	"testing"
)

// Getter returns the variables of env.
func Getter(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// With is env with more variables.
func With(env map[string]string, more ...string) map[string]string {
	all := maps.Clone(env)
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// The variables that launchers set, as one of the ranks sees them.
var (
	Torch = map[string]string{
		"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
		"MASTER_ADDR": "node01", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
	}
	OpenMPI = map[string]string{
		"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
		"PMIX_NAMESPACE": "112263169", "PMIX_RANK": "1", "OMPI_MCA_orte_hnp_uri": "112263168.0;tcp://192.0.2.2:44347",
	}
	Hydra = map[string]string{"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
	Srun  = map[string]string{
		"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "6", "SLURM_STEP_NUM_TASKS": "7", "SLURM_NTASKS": "7", "SLURM_LOCALID": "1",
		"SLURM_NODEID": "2", "SLURM_STEP_NODELIST": "gpu[07-08,11],x1", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
	}
)

// Clear empties all of these variables, and mori's own, until the test ends.
func Clear(t testing.TB) {
	ours := map[string]string{"MORI_RANK": "", "MORI_WORLD_SIZE": "", "MORI_BOOTSTRAP": ""}
	for _, env := range []map[string]string{Torch, OpenMPI, Hydra, Srun, ours} {
		for name := range env {
			t.Setenv(name, "")
		}
	}
}
