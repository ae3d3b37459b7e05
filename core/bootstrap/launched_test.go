// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap/launcher"
	"mori/core/bootstrap/launcher/launchertest"
)

// launchAll joins as all ranks of a launch in this process.
func launchAll(t *testing.T, size int, o Options, env map[string]string) ([]Group, error) {
	t.Helper()
	groups := make([]Group, size)
	errs := ranks(size, func(rank int) error {
		mine := launchertest.With(env, "RANK", strconv.Itoa(rank), "WORLD_SIZE", strconv.Itoa(size))
		l, _, err := launcher.Parse(launchertest.Getter(mine))
		if err != nil {
			return err
		}
		g, err := joinLaunch(context.Background(), l, o)
		if err == nil {
			groups[rank] = g
		}
		return err
	})
	t.Cleanup(func() { closeAll(groups) })
	return groups, errors.Join(errs...)
}

// onlyHere is the environment of a run that no other has, all of it on this host.
func onlyHere(t *testing.T, size int) map[string]string {
	return map[string]string{
		"MASTER_ADDR": "somewhere", "MASTER_PORT": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": strconv.Itoa(size),
		"TORCHELASTIC_RUN_ID": fmt.Sprint(t.Name(), os.Getpid()),
	}
}

func TestLaunchedRanksJoin(t *testing.T) {
	for range 3 { // one after the other by the same ranks
		groups, err := launchAll(t, 5, Options{Timeout: patience}, onlyHere(t, 5))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(each(groups, exercise)...); err != nil {
			t.Fatal(err)
		}
		closeAll(groups)
	}
}

// TestRunsOfOneHostStayApart has programs that are not of the run at its first two ports, of which
// one says nothing.
func TestRunsOfOneHostStayApart(t *testing.T) {
	env := onlyHere(t, 3)
	l, _, err := launcher.Parse(launchertest.Getter(launchertest.With(env, "RANK", "0", "WORLD_SIZE", "3")))
	if err != nil {
		t.Fatal(err)
	}
	p, err := planOf(l, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var other [secretSize]byte
	other[0] = 1
	strangers := make(chan ticket, 100)
	taken, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(p.ports[0])))
	if err != nil {
		t.Skipf("the run's first port is taken: %v", err)
	}
	d := openDoor(taken, other, func(k ticket, c *net.TCPConn) { strangers <- k; _ = c.Close() })
	defer d.close()
	groups, err := launchAll(t, 3, Options{Timeout: patience}, env)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(each(groups, exercise)...); err != nil {
		t.Error(err)
	}
	if len(strangers) > 0 {
		t.Error("a rank has joined another run")
	}
}

func TestNamesSeparateGroupsOfOneLaunch(t *testing.T) {
	env := onlyHere(t, 2)
	done := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() {
			groups, err := launchAll(t, 2, Options{Timeout: patience, Name: name}, env)
			if err == nil {
				err = errors.Join(each(groups, exercise)...)
			}
			done <- err
		}()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
}

func TestLaunchedRanksJoinAtARendezvous(t *testing.T) {
	id := loopbackID(t) // for its port
	reservations.release(id)
	for _, rendezvous := range []string{id.addr().String(), "localhost:" + strconv.Itoa(int(id.addr().Port())), filepath.Join(t.TempDir(), "id")} {
		groups, err := launchAll(t, 3, Options{Timeout: patience, Name: "n"}, map[string]string{"MORI_BOOTSTRAP": rendezvous})
		if err != nil {
			t.Fatalf("%s: %v", rendezvous, err)
		}
		if err := errors.Join(each(groups, exercise)...); err != nil {
			t.Errorf("%s: %v", rendezvous, err)
		}
		closeAll(groups)
	}
}

func TestJoinLaunchedWithoutALauncher(t *testing.T) {
	launchertest.Clear(t)
	if _, err := JoinLaunched(context.Background(), Options{}); !errors.Is(err, ErrNotLaunched) || !strings.Contains(err.Error(), "MORI_RANK") {
		t.Errorf("got %v, want ErrNotLaunched", err)
	}
}

func TestRunsHaveSecretsOfTheirOwn(t *testing.T) {
	seen := map[[secretSize]byte]string{}
	for name, c := range map[string]struct {
		env          map[string]string
		called, auth string
	}{
		"a run":                {launchertest.Torch, "", ""},
		"another master port":  {launchertest.With(launchertest.Torch, "MASTER_PORT", "29501"), "", ""},
		"after a restart":      {launchertest.With(launchertest.Torch, "TORCHELASTIC_RESTART_COUNT", "1"), "", ""},
		"another size":         {launchertest.With(launchertest.Torch, "WORLD_SIZE", "9"), "", ""},
		"another name":         {launchertest.Torch, "second", ""},
		"with a secret":        {launchertest.Torch, "", "swordfish"},
		"by mpirun":            {launchertest.OpenMPI, "", ""},
		"by another mpirun":    {launchertest.With(launchertest.OpenMPI, "PMIX_NAMESPACE", "112263170"), "", ""},
		"by srun":              {launchertest.Srun, "", ""},
		"the job's next step":  {launchertest.With(launchertest.Srun, "SLURM_STEP_ID", "1"), "", ""},
		"a meeting point":      {launchertest.With(launchertest.Torch, "MORI_BOOTSTRAP", "h:1"), "", ""},
		"its neighbour":        {launchertest.With(launchertest.Torch, "MORI_BOOTSTRAP", "h:2"), "", ""},
		"a tempting confusion": {launchertest.With(launchertest.Torch, "MASTER_PORT", "2950", "TORCHELASTIC_RUN_ID", "0none"), "", ""},
	} {
		l, _, err := launcher.Parse(launchertest.Getter(c.env))
		if err != nil {
			t.Fatal(err)
		}
		p, err := planOf(l, c.called, c.auth)
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
		l0, _, err := launcher.Parse(launchertest.Getter(other))
		if err != nil {
			t.Fatal(err)
		}
		if p0, err := planOf(l0, c.called, c.auth); err != nil || p0.secret != p.secret || !slices.Equal(p0.ports, p.ports) || p0.host != p.host {
			t.Errorf("%s: rank 0 has another plan: %v", name, err)
		}
		for _, port := range p.ports {
			if l.Rendezvous == "" && (port < firstDerived || port >= afterDerived) {
				t.Errorf("%s: port %d", name, port)
			}
		}
	}
}

func TestUnknownRendezvousSaysWhatToSet(t *testing.T) {
	l, _, err := launcher.Parse(launchertest.Getter(launchertest.With(launchertest.OpenMPI, "OMPI_COMM_WORLD_SIZE", "4")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planOf(l, "", ""); err == nil || !strings.Contains(err.Error(), "MORI_BOOTSTRAP") {
		t.Errorf("got %v, want an error that says to set MORI_BOOTSTRAP", err)
	}
}

// TestUnderMPIRun starts this binary by each mpirun that is installed, two runs at a time.
func TestUnderMPIRun(t *testing.T) {
	for name, args := range map[string][]string{
		"mpirun":        {"--allow-run-as-root", "--oversubscribe", "-np", "4"},
		"mpiexec.hydra": {"-np", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				if slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "mpi") && name == "mpirun" {
					t.Fatalf("MORI_REQUIRE has mpi: %v", err)
				}
				t.Skipf("%v", err)
			}
			var ps []*process
			for range 2 {
				cmd := exec.Command(path, append(slices.Clone(args), os.Args[0], "-test.run=^$")...)
				cmd.Env = append(os.Environ(), childRole+"=once")
				ps = append(ps, launch(t, cmd))
			}
			for _, p := range ps {
				var lines []string
				for range 8 {
					lines = append(lines, p.line(t, 2*time.Minute))
				}
				slices.Sort(lines)
				if want := []string{"done", "done", "done", "done", "joined 0 4", "joined 1 4", "joined 2 4", "joined 3 4"}; !slices.Equal(lines, want) {
					t.Errorf("%s says %q, want %q", name, lines, want)
				}
			}
		})
	}
}
