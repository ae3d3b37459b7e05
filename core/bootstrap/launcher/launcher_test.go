// SPDX-License-Identifier: MIT

package launcher

import (
	"strings"
	"testing"

	"mori/core/bootstrap/launcher/launchertest"
)

func TestLaunchersAreRecognised(t *testing.T) {
	type brief struct {
		by                               string
		rank, size, localRank, localSize int
		host, place                      string
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want brief
	}{
		"torchrun":                          {launchertest.Torch, brief{"torchrun", 5, 8, 1, 4, "node01", ""}},
		"torch's env:// by hand":            {map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}, brief{"torchrun", 0, 2, -1, 0, "h", ""}},
		"Open MPI":                          {launchertest.OpenMPI, brief{"Open MPI", 1, 2, 1, 2, "", ""}},
		"Hydra":                             {launchertest.Hydra, brief{"Hydra", 3, 4, 1, 2, "", ""}},
		"srun":                              {launchertest.Srun, brief{"srun", 6, 7, 1, 2, "gpu07", ""}},
		"srun without the step's count":     {launchertest.With(launchertest.Srun, "SLURM_STEP_NUM_TASKS", ""), brief{"srun", 6, 7, 1, 2, "gpu07", ""}},
		"ours":                              {map[string]string{"MORI_RANK": "1", "MORI_WORLD_SIZE": "3", "MORI_BOOTSTRAP": "h:99"}, brief{"MORI_RANK", 1, 3, -1, 0, "", "h:99"}},
		"torchrun inside srun":              {launchertest.With(launchertest.Srun, pairs(launchertest.Torch)...), brief{"torchrun", 5, 8, 1, 4, "node01", ""}},
		"mpirun inside a Slurm job":         {launchertest.With(launchertest.Srun, pairs(launchertest.OpenMPI)...), brief{"Open MPI", 1, 2, 1, 2, "", ""}},
		"torchrun inside mpirun":            {launchertest.With(launchertest.OpenMPI, pairs(launchertest.Torch)...), brief{"torchrun", 5, 8, 1, 4, "node01", ""}},
		"ours inside everything":            {launchertest.With(launchertest.With(launchertest.Srun, pairs(launchertest.Torch)...), "MORI_RANK", "1", "MORI_WORLD_SIZE", "3"), brief{"MORI_RANK", 1, 3, -1, 0, "", ""}},
		"a place for Open MPI's many hosts": {launchertest.With(launchertest.OpenMPI, "MORI_BOOTSTRAP", "/shared/f"), brief{"Open MPI", 1, 2, 1, 2, "", "/shared/f"}},
	} {
		l, ok, err := Parse(launchertest.Getter(c.env))
		if got := (brief{l.By, l.Rank, l.Size, l.LocalRank, l.LocalSize, l.Host, l.Rendezvous}); err != nil || !ok || got != c.want {
			t.Errorf("%s: %+v, %v, %v; want %+v", name, got, ok, err, c.want)
		}
	}
}

func pairs(env map[string]string) (all []string) {
	for k, v := range env {
		all = append(all, k, v)
	}
	return all
}

func TestNoLauncher(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing":           {},
		"a batch script":    {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
		"a batch step":      launchertest.With(launchertest.Srun, "SLURM_STEP_ID", "4294967291"),
		"an allocation":     {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"},
		"only a rendezvous": {"MORI_BOOTSTRAP": "h:1"},
	} {
		if l, ok, err := Parse(launchertest.Getter(env)); ok || err != nil {
			t.Errorf("%s: %+v, %v, %v; want nothing", name, l, ok, err)
		}
	}
}

func TestHalfSetVariablesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		names []string
	}{
		"RANK alone":               {map[string]string{"RANK": "0"}, []string{"RANK", "WORLD_SIZE is not"}},
		"WORLD_SIZE alone":         {map[string]string{"WORLD_SIZE": "2"}, []string{"RANK is not"}},
		"our rank alone":           {map[string]string{"MORI_RANK": "2"}, []string{"MORI_WORLD_SIZE is not"}},
		"rank beyond the size":     {launchertest.With(launchertest.Torch, "RANK", "8"), []string{`RANK="8"`, "0 to 7"}},
		"negative rank":            {launchertest.With(launchertest.Torch, "RANK", "-1"), []string{`RANK="-1"`}},
		"size 0":                   {launchertest.With(launchertest.OpenMPI, "OMPI_COMM_WORLD_SIZE", "0"), []string{`OMPI_COMM_WORLD_SIZE="0"`}},
		"no number":                {launchertest.With(launchertest.Hydra, "PMI_SIZE", "four"), []string{`PMI_SIZE="four"`}},
		"local beyond its size":    {launchertest.With(launchertest.Torch, "LOCAL_RANK", "4"), []string{`LOCAL_RANK="4"`, "0 to 3"}},
		"more local than there is": {launchertest.With(launchertest.Torch, "LOCAL_WORLD_SIZE", "9"), []string{`LOCAL_WORLD_SIZE="9"`}},
		"two mistakes":             {launchertest.With(launchertest.Torch, "RANK", "x", "MASTER_PORT", "70000"), []string{"RANK", "MASTER_PORT"}},
		"nodelist":                 {launchertest.With(launchertest.Srun, "SLURM_STEP_NODELIST", "node["), []string{"SLURM_STEP_NODELIST"}},
		"tasks of another node":    {launchertest.With(launchertest.Srun, "SLURM_NODEID", "4"), []string{"SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID=4"}},
		"place":                    {launchertest.With(launchertest.Torch, "MORI_BOOTSTRAP", "nonsense"), []string{`MORI_BOOTSTRAP="nonsense"`}},
		"place without a port":     {launchertest.With(launchertest.Torch, "MORI_BOOTSTRAP", "host:0"), []string{`MORI_BOOTSTRAP="host:0"`}},
	} {
		l, ok, err := Parse(launchertest.Getter(c.env))
		if ok || err == nil {
			t.Errorf("%s: %+v, want an error", name, l)
			continue
		}
		for _, want := range c.names {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"node": "node", "a,b": "a", "node[01-04,7],x": "node01", "node[7]": "node7", "node[3,5]": "node3", "r[1-2]n[05,7]-ib": "r1n05-ib",
		"10.0.0.1": "10.0.0.1", "node-1": "node-1",
		"": "", "[": "", "node[": "", "node[]": "", "node[a-b]": "", "node]": "", ",a": "", "a b": "", "node[1;2]": "",
	} {
		if got, err := firstHost(list); got != want || (err != nil) != (want == "") {
			t.Errorf("first host of %q is %q, %v; want %q", list, got, err, want)
		}
	}
}

func TestTasksOf(t *testing.T) {
	for _, c := range []struct {
		list string
		node int
		want int
	}{
		{"4", 0, 4}, {"2(x3),1", 0, 2}, {"2(x3),1", 2, 2}, {"2(x3),1", 3, 1}, {"1,3", 1, 3},
		{"2(x3),1", 4, -1}, {"", 0, -1}, {"x", 0, -1}, {"2(x", 0, -1}, {"2(x0)", 0, -1}, {"2(x3", 0, -1}, {"-1", 0, -1},
	} {
		if got, err := tasksOf(c.list, c.node); (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("tasks of node %d in %q: %d, %v; want %d", c.node, c.list, got, err, c.want)
		}
	}
}
