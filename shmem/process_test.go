// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
)

// PEs that are processes: this test binary again, which runs TestProcess only. What they do is a
// job, by its name, since no function travels.

// A job is what each PE does. rounds is how often, and it returns how long that took, which counts
// on PE 0.
type job func(w *World, rounds int) (time.Duration, error)

const (
	jobVariable    = "MORI_TEST_SHMEM_JOB" // name
	peVariable     = "MORI_TEST_SHMEM_PE"
	sizeVariable   = "MORI_TEST_SHMEM_NPES"
	roundsVariable = "MORI_TEST_SHMEM_ROUNDS"
	fileVariable   = "MORI_TEST_SHMEM_FILE"
	heapVariable   = "MORI_TEST_SHMEM_HEAP"
	processTimeout = time.Minute
)

var took = regexp.MustCompile(`took (\d+) ns`)

// processes runs a job in n processes and returns how long it took on PE 0.
func processes(t testing.TB, n int, name string, rounds int, heap uint64) time.Duration {
	t.Helper()
	meeting := filepath.Join(t.TempDir(), "meeting")
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	defer cancel()
	errs, out := make([]error, n), make([][]byte, n)
	var wait sync.WaitGroup
	for pe := range n {
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProcess$", "-test.v")
		c.Env = append(os.Environ(), jobVariable+"="+name, fmt.Sprintf("%s=%d", peVariable, pe), fmt.Sprintf("%s=%d", sizeVariable, n),
			fmt.Sprintf("%s=%d", roundsVariable, rounds), fmt.Sprintf("%s=%d", heapVariable, heap), fileVariable+"="+meeting)
		wait.Add(1)
		go func() {
			defer wait.Done()
			out[pe], errs[pe] = c.CombinedOutput()
		}()
	}
	wait.Wait()
	for pe, err := range errs {
		if err != nil {
			t.Fatalf("process of PE %d: %v\n%s", pe, err, out[pe])
		}
	}
	found := took.FindSubmatch(out[0])
	if found == nil {
		t.Fatalf("PE 0 does not say how long it took:\n%s", out[0])
	}
	ns, _ := strconv.ParseInt(string(found[1]), 10, 64) // digits
	return time.Duration(ns)
}

// TestProcess is a PE of processes.
func TestProcess(t *testing.T) {
	name := os.Getenv(jobVariable)
	if name == "" {
		t.Skip("this is not the process of a PE")
	}
	number := func(variable string) int {
		v, err := strconv.Atoi(os.Getenv(variable))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	defer cancel()
	g, err := bootstrap.JoinFile(ctx, os.Getenv(fileVariable), number(peVariable), number(sizeVariable), bootstrap.Options{Timeout: processTimeout})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Init(ctx, g, Config{HeapSize: uint64(number(heapVariable)), Timeout: processTimeout})
	if err != nil {
		t.Fatal(err)
	}
	d, err := jobs[name](w, number(roundsVariable))
	if err = errors.Join(err, w.Finalize(ctx)); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("took %d ns\n", d.Nanoseconds())
}

// timed is how long that many rounds of f take on all PEs, going by the median of some shares of
// them: the machine may have other work.
func timed(w *World, rounds int, f func() error) (time.Duration, error) {
	share := max(rounds/20, 1)
	took := make([]time.Duration, 21)
	if err := w.BarrierAll(); err != nil {
		return 0, err
	}
	begin := time.Now()
	for i := range took {
		for range share {
			if err := f(); err != nil {
				return 0, err
			}
		}
		if err := w.BarrierAll(); err != nil { // PEs that share a core take turns: what counts is when all are done
			return 0, err
		}
		end := time.Now()
		took[i], begin = end.Sub(begin), end
	}
	slices.Sort(took)
	return took[len(took)/2] * time.Duration(rounds) / time.Duration(share), nil
}

// jobs are what processes can do.
var jobs = map[string]job{
	"barrier": func(w *World, rounds int) (time.Duration, error) { return timed(w, rounds, w.BarrierAll) },
	"dissemination": func(w *World, rounds int) (time.Duration, error) {
		pretend(w, 1, false)
		return timed(w, rounds, w.BarrierAll)
	},
	"central": func(w *World, rounds int) (time.Duration, error) {
		pretend(w, 1, true)
		return timed(w, rounds, w.BarrierAll)
	},
	"two hosts": func(w *World, rounds int) (time.Duration, error) {
		pretend(w, 2, true)
		return timed(w, rounds, w.BarrierAll)
	},
	"flags": func(w *World, rounds int) (time.Duration, error) {
		i := uint64(0)
		return timed(w, rounds, func() error { i++; return rawFlag(w, i) })
	},
}
