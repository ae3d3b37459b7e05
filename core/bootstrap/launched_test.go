// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// launchAll joins as all ranks of a launch in this process.
func launchAll(t *testing.T, size int, o Options, env map[string]string) ([]Group, error) {
	t.Helper()
	groups := make([]Group, size)
	errs := ranks(size, func(rank int) error {
		mine := with(env, "RANK", strconv.Itoa(rank), "WORLD_SIZE", strconv.Itoa(size))
		l, _, err := recognise(getter(mine))
		if err != nil {
			return err
		}
		g, err := l.join(context.Background(), o)
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

func TestLaunchedRanksMeet(t *testing.T) {
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

// TestRunsOfOneHostDoNotMeet has programs that are not of the run at its first two ports, of which
// one says nothing.
func TestRunsOfOneHostDoNotMeet(t *testing.T) {
	env := onlyHere(t, 3)
	l, _, err := recognise(getter(with(env, "RANK", "0", "WORLD_SIZE", "3")))
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.plan("", "")
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

func TestNamesTellGroupsOfOneLaunchApart(t *testing.T) {
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

func TestLaunchedMeetAtAPlace(t *testing.T) {
	id := loopbackID(t) // for its port
	reservations.release(id)
	for _, place := range []string{id.addr().String(), "localhost:" + strconv.Itoa(int(id.addr().Port())), filepath.Join(t.TempDir(), "meet")} {
		groups, err := launchAll(t, 3, Options{Timeout: patience, Name: "n"}, map[string]string{"MORI_BOOTSTRAP": place})
		if err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		if err := errors.Join(each(groups, exercise)...); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		closeAll(groups)
	}
}

func TestJoinLaunchedWithoutALauncher(t *testing.T) {
	for _, d := range []dialect{dialectMORI, dialectTorch, dialectOpenMPI, dialectHydra, dialectSlurm} {
		for _, name := range []string{d.rank, d.size, "SLURM_STEP_ID"} {
			t.Setenv(name, "")
		}
	}
	if _, err := JoinLaunched(context.Background(), Options{}); !errors.Is(err, ErrNotLaunched) || !strings.Contains(err.Error(), "MORI_RANK") {
		t.Errorf("got %v, want ErrNotLaunched", err)
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
