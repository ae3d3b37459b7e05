// SPDX-License-Identifier: MIT

package bootstrap

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func getter(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// with is env with more variables.
func with(env map[string]string, more ...string) map[string]string {
	all := maps.Clone(env)
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

var (
	torchEnv = map[string]string{
		"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
		"MASTER_ADDR": "node01", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
	}
	openMPIEnv = map[string]string{
		"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
		"PMIX_NAMESPACE": "112263169", "PMIX_RANK": "1", "OMPI_MCA_orte_hnp_uri": "112263168.0;tcp://192.0.2.2:44347",
	}
	hydraEnv = map[string]string{"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
	srunEnv  = map[string]string{
		"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "6", "SLURM_STEP_NUM_TASKS": "7", "SLURM_NTASKS": "7", "SLURM_LOCALID": "1",
		"SLURM_NODEID": "2", "SLURM_STEP_NODELIST": "gpu[07-08,11],x1", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
	}
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
		"torchrun":                          {torchEnv, brief{"torchrun", 5, 8, 1, 4, "node01", ""}},
		"torch's env:// by hand":            {map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}, brief{"torchrun", 0, 2, -1, 0, "h", ""}},
		"Open MPI":                          {openMPIEnv, brief{"Open MPI", 1, 2, 1, 2, "", ""}},
		"Hydra":                             {hydraEnv, brief{"Hydra", 3, 4, 1, 2, "", ""}},
		"srun":                              {srunEnv, brief{"srun", 6, 7, 1, 2, "gpu07", ""}},
		"srun without the step's count":     {with(srunEnv, "SLURM_STEP_NUM_TASKS", ""), brief{"srun", 6, 7, 1, 2, "gpu07", ""}},
		"ours":                              {map[string]string{"MORI_RANK": "1", "MORI_WORLD_SIZE": "3", "MORI_BOOTSTRAP": "h:99"}, brief{"MORI_RANK", 1, 3, -1, 0, "", "h:99"}},
		"torchrun inside srun":              {with(srunEnv, pairs(torchEnv)...), brief{"torchrun", 5, 8, 1, 4, "node01", ""}},
		"mpirun inside a Slurm job":         {with(srunEnv, pairs(openMPIEnv)...), brief{"Open MPI", 1, 2, 1, 2, "", ""}},
		"torchrun inside mpirun":            {with(openMPIEnv, pairs(torchEnv)...), brief{"torchrun", 5, 8, 1, 4, "node01", ""}},
		"ours inside everything":            {with(with(srunEnv, pairs(torchEnv)...), "MORI_RANK", "1", "MORI_WORLD_SIZE", "3"), brief{"MORI_RANK", 1, 3, -1, 0, "", ""}},
		"a place for Open MPI's many hosts": {with(openMPIEnv, "MORI_BOOTSTRAP", "/shared/f"), brief{"Open MPI", 1, 2, 1, 2, "", "/shared/f"}},
	} {
		l, ok, err := recognise(getter(c.env))
		if got := (brief{l.By, l.Rank, l.Size, l.LocalRank, l.LocalSize, l.Host, l.Place}); err != nil || !ok || got != c.want {
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
		"nothing":            {},
		"a batch script":     {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
		"a batch step":       with(srunEnv, "SLURM_STEP_ID", "4294967291"),
		"an allocation":      {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"},
		"only where to meet": {"MORI_BOOTSTRAP": "h:1"},
	} {
		if l, ok, err := recognise(getter(env)); ok || err != nil {
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
		"rank beyond the size":     {with(torchEnv, "RANK", "8"), []string{`RANK="8"`, "0 to 7"}},
		"negative rank":            {with(torchEnv, "RANK", "-1"), []string{`RANK="-1"`}},
		"size 0":                   {with(openMPIEnv, "OMPI_COMM_WORLD_SIZE", "0"), []string{`OMPI_COMM_WORLD_SIZE="0"`}},
		"no number":                {with(hydraEnv, "PMI_SIZE", "four"), []string{`PMI_SIZE="four"`}},
		"local beyond its size":    {with(torchEnv, "LOCAL_RANK", "4"), []string{`LOCAL_RANK="4"`, "0 to 3"}},
		"more local than there is": {with(torchEnv, "LOCAL_WORLD_SIZE", "9"), []string{`LOCAL_WORLD_SIZE="9"`}},
		"two mistakes":             {with(torchEnv, "RANK", "x", "MASTER_PORT", "70000"), []string{"RANK", "MASTER_PORT"}},
		"nodelist":                 {with(srunEnv, "SLURM_STEP_NODELIST", "node["), []string{"SLURM_STEP_NODELIST"}},
		"tasks of another node":    {with(srunEnv, "SLURM_NODEID", "4"), []string{"SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID=4"}},
		"place":                    {with(torchEnv, "MORI_BOOTSTRAP", "nonsense"), []string{`MORI_BOOTSTRAP="nonsense"`}},
		"place without a port":     {with(torchEnv, "MORI_BOOTSTRAP", "host:0"), []string{`MORI_BOOTSTRAP="host:0"`}},
	} {
		l, ok, err := recognise(getter(c.env))
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

func TestRunsHaveSecretsOfTheirOwn(t *testing.T) {
	seen := map[[secretSize]byte]string{}
	for name, c := range map[string]struct {
		env          map[string]string
		called, auth string
	}{
		"a run":                {torchEnv, "", ""},
		"another master port":  {with(torchEnv, "MASTER_PORT", "29501"), "", ""},
		"after a restart":      {with(torchEnv, "TORCHELASTIC_RESTART_COUNT", "1"), "", ""},
		"another size":         {with(torchEnv, "WORLD_SIZE", "9"), "", ""},
		"another name":         {torchEnv, "second", ""},
		"with a secret":        {torchEnv, "", "swordfish"},
		"by mpirun":            {openMPIEnv, "", ""},
		"by another mpirun":    {with(openMPIEnv, "PMIX_NAMESPACE", "112263170"), "", ""},
		"by srun":              {srunEnv, "", ""},
		"the job's next step":  {with(srunEnv, "SLURM_STEP_ID", "1"), "", ""},
		"a meeting point":      {with(torchEnv, "MORI_BOOTSTRAP", "h:1"), "", ""},
		"its neighbour":        {with(torchEnv, "MORI_BOOTSTRAP", "h:2"), "", ""},
		"a tempting confusion": {with(torchEnv, "MASTER_PORT", "2950", "TORCHELASTIC_RUN_ID", "0none"), "", ""},
	} {
		l, _, err := recognise(getter(c.env))
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.plan(c.called, c.auth)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, ok := seen[p.secret]; ok {
			t.Errorf("%s and %s have the same secret", name, other)
		}
		seen[p.secret] = name
		other := maps.Clone(c.env)
		for _, rank := range []string{"RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"} {
			if other[rank] != "" {
				other[rank] = "0"
			}
		}
		l0, _, err := recognise(getter(other))
		if err != nil {
			t.Fatal(err)
		}
		if p0, err := l0.plan(c.called, c.auth); err != nil || p0.secret != p.secret || !slices.Equal(p0.ports, p.ports) || p0.host != p.host {
			t.Errorf("%s: rank 0 does not meet the others: %v", name, err)
		}
		for _, port := range p.ports {
			if l.Place == "" && (port < firstDerived || port >= afterDerived) {
				t.Errorf("%s: port %d", name, port)
			}
		}
	}
}

func TestUnknownMeetingPointSaysWhatToSet(t *testing.T) {
	l, _, err := recognise(getter(with(openMPIEnv, "OMPI_COMM_WORLD_SIZE", "4")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.plan("", ""); err == nil || !strings.Contains(err.Error(), "MORI_BOOTSTRAP") {
		t.Errorf("got %v, want an error that says to set MORI_BOOTSTRAP", err)
	}
}
