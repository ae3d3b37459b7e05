// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the processes that a test starts do is in variables.
const (
	childRole = "BOOTSTRAP_TEST_ROLE" // idle, barrier, gather: until an error; once: one barrier and Close
	childID   = "BOOTSTRAP_TEST_ID"   // in hexadecimal; JoinLaunched without it
	childRank = "BOOTSTRAP_TEST_RANK"
	childSize = "BOOTSTRAP_TEST_SIZE"
)

// child is what such a process does. It says "joined", then "broken" with the error, and ends when
// it must.
func child(role string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	g, err := childJoin(ctx)
	if err != nil {
		fmt.Println("broken", err)
		return 1
	}
	fmt.Println("joined", g.Rank(), g.Size())
	if role == "parent" {
		heir, err := bequeath(g)
		if err != nil {
			fmt.Println("broken", err)
			return 1
		}
		fmt.Println(heir)
		role = "idle"
	}
	for err == nil {
		switch role {
		case "idle":
			select {
			case <-g.Failed():
			case <-ctx.Done():
			}
			err = errors.Join(g.Err(), ctx.Err())
		case "barrier":
			err = g.Barrier(ctx)
		case "gather":
			_, err = g.AllGather(ctx, make([]byte, 10000))
		case "once":
			var all [][]byte
			if all, err = g.AllGather(ctx, []byte(strconv.Itoa(g.Rank()))); err == nil && string(all[g.Size()-1]) != strconv.Itoa(g.Size()-1) {
				err = fmt.Errorf("last rank's blob is %q", all[g.Size()-1])
			}
			if err = errors.Join(err, g.Close()); err == nil {
				fmt.Println("done")
				return 0
			}
		}
	}
	var who *RankError
	if errors.As(err, &who) {
		fmt.Println("broken by", who.Rank, who.Left, err)
	} else {
		fmt.Println("broken", err)
	}
	_ = g.Close()
	return 0
}

// bequeath starts a process that inherits all connections, as one that Python forks does, and
// outlives this one.
func bequeath(g Group) (pid int, err error) {
	m := g.(*member)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		if err := l.raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETFD, 0) }); err != nil {
			return 0, err
		}
	}
	heir := exec.Command("sleep", "60")
	err = heir.Start()
	return heir.Process.Pid, err
}

func childJoin(ctx context.Context) (Group, error) {
	if os.Getenv(childID) == "" {
		return JoinLaunched(ctx, Options{Timeout: 2 * patience})
	}
	b, err := hex.DecodeString(os.Getenv(childID))
	if err != nil {
		return nil, err
	}
	id, err := ParseUniqueID(b)
	if err != nil {
		return nil, err
	}
	rank, err := strconv.Atoi(os.Getenv(childRank))
	if err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(os.Getenv(childSize))
	if err != nil {
		return nil, err
	}
	return Join(ctx, id, rank, size, Options{Timeout: 2 * patience})
}

// A process is one that a test has started.
type process struct {
	*exec.Cmd
	lines chan string // closed at its end
}

// start runs this binary again.
func start(t testing.TB, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), env...)
	return launch(t, cmd)
}

func launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: cmd, lines: make(chan string, 1000)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range p.lines {
		}
		if t.Failed() && complaints.Len() > 0 {
			t.Logf("process %d: %s", cmd.Process.Pid, complaints.String())
		}
	})
	return p
}

// line is the next line of the process.
func (p *process) line(t testing.TB, within time.Duration) string {
	t.Helper()
	select {
	case s, ok := <-p.lines:
		if !ok {
			return "ended"
		}
		return s
	case <-time.After(within):
		t.Fatalf("process %d says nothing for %s", p.Process.Pid, within)
		return ""
	}
}

// startRanks starts a process for each rank of a new group.
func startRanks(t testing.TB, size int, role string) []*process {
	t.Helper()
	id := loopbackID(t)
	ps := make([]*process, size)
	for rank := range ps {
		ps[rank] = start(t, childRole+"="+role, childID+"="+hex.EncodeToString(id[:]), childRank+"="+strconv.Itoa(rank), childSize+"="+strconv.Itoa(size))
	}
	for rank, p := range ps {
		if s := p.line(t, patience); !strings.HasPrefix(s, "joined") {
			t.Fatalf("rank %d: %s", rank, s)
		}
	}
	return ps
}

// TestKilledProcessIsNamedToAll kills the root, an inner node and a leaf of the tree of 12 ranks.
func TestKilledProcessIsNamedToAll(t *testing.T) {
	for _, role := range []string{"idle", "barrier", "gather"} {
		for _, dead := range []int{0, 1, 10} {
			t.Run(fmt.Sprintf("rank %d in %s", dead, role), func(t *testing.T) {
				ps := startRanks(t, 12, role)
				time.Sleep(20 * time.Millisecond) // so that they are in the midst of it
				killed := time.Now()
				if err := ps[dead].Process.Kill(); err != nil {
					t.Fatal(err)
				}
				for rank, p := range ps {
					if rank == dead {
						continue
					}
					want := fmt.Sprintf("broken by %d false", dead)
					if s := p.line(t, patience); !strings.HasPrefix(s, want) {
						t.Errorf("rank %d says %q, want %q", rank, s, want)
					}
				}
				t.Logf("all 11 others named rank %d after %s", dead, time.Since(killed).Round(time.Millisecond))
			})
		}
	}
}

// TestKilledProcessWithHeirsIsNamedToAll kills a process whose connections somebody has inherited,
// so that they stay open.
func TestKilledProcessWithHeirsIsNamedToAll(t *testing.T) {
	for _, dead := range []int{0, 1} {
		ps := startRanks(t, 3, "parent")
		for _, p := range ps {
			heir, err := strconv.Atoi(p.line(t, patience))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(heir, syscall.SIGKILL) }()
		}
		if err := ps[dead].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for rank, p := range ps {
			want := fmt.Sprintf("broken by %d false", dead)
			if rank == dead {
				continue
			}
			if s := p.line(t, 10*time.Second); !strings.HasPrefix(s, want) {
				t.Errorf("rank %d says %q, want %q", rank, s, want)
			}
		}
	}
}

// TestStoppedProcessIsNamed stops a rank, which then neither dies nor answers.
func TestStoppedProcessIsNamed(t *testing.T) {
	for _, c := range []struct {
		stopped int
		want    string
	}{{2, "rank 2 does not answer"}, {0, "rank 0 does not answer"}} {
		id := loopbackID(t)
		ps := make([]*process, 3)
		env := []string{childRole + "=idle", childID + "=" + hex.EncodeToString(id[:]), childSize + "=4"}
		for i := range ps {
			if rank := (c.stopped + 1 + i) % 4; rank != 1 { // rank 1 is this process
				ps[i] = start(t, append(env, childRank+"="+strconv.Itoa(rank))...)
			}
		}
		stopped := start(t, append(env, childRank+"="+strconv.Itoa(c.stopped))...)
		g, err := Join(context.Background(), id, 1, 4, Options{Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		if s := stopped.line(t, patience); !strings.HasPrefix(s, "joined") {
			t.Fatal(s)
		}
		if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := g.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("rank 1 says %v, want %q", err, c.want)
		}
		_ = g.Close()
	}
}

// startMany measures how long it takes size processes to start, join, exchange once and leave.
func startMany(t testing.TB, size int) (joined, done time.Duration) {
	t.Helper()
	began := time.Now()
	ps := startRanks(t, size, "once")
	joined = time.Since(began)
	for rank, p := range ps {
		if s := p.line(t, patience); s != "done" {
			t.Fatalf("rank %d: %s", rank, s)
		}
	}
	return joined, time.Since(began)
}

func TestManyProcessesStart(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("256 processes are too heavy with -short and with the race detector")
	}
	joined, done := startMany(t, 256)
	t.Logf("256 processes: all joined after %s, exchanged and left after %s", joined.Round(time.Millisecond), done.Round(time.Millisecond))
}
