// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"mori/core/device"
	"mori/native/gpu/gputest"
	"mori/shmem"
)

// repeats returns how often a test repeats each case in which ranks disagree or do not come:
// MORI_TEST_REPEAT, by default twice.
func repeats(t *testing.T) int {
	text := os.Getenv("MORI_TEST_REPEAT")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("MORI_TEST_REPEAT is %q: %v", text, err)
	}
	return n
}

// A setting has the kernels of an op, and the number of ranks on a host.
type setting struct {
	name    string
	kernel  KernelType
	world   int
	perHost int // 0: one host
}

var settings = []setting{
	{"IntraNode", KernelIntraNode, 3, 0},
	{"InterNode", KernelInterNode, 3, 1},
	{"InterNodeV1", KernelInterNodeV1, 4, 2},
	{"AsyncLL", KernelAsyncLL, 2, 1},
}

// each runs f on the ranks of each setting, repeatedly. Every other time the last lane of each
// kernel begins late, after the others have acted.
func each(t *testing.T, choose func(s setting) Options, f func(j *gpuJob) error) {
	gputest.Need(t)
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			for i := range repeats(t) {
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					if i%2 == 1 && !gputest.Real() {
						gputest.Late(t, 30*time.Millisecond)
					}
					c, opts := hostsConfig(s.world, s.kernel), choose(s)
					if s.perHost == 0 {
						onGPUs(t, c, opts, f)
					} else {
						onHosts(t, s.perHost, c, opts, f)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// unqueued waits for the rank's kernels where ranks share a real GPU. A kernel that is queued
// behind another of its stream can hold up kernels of other ranks in the same hardware queue,
// and the first of the two may wait for these: 1 run of some 2,000 ended so on one H200.
func (j *gpuJob) unqueued() error {
	all, err := device.Devices()
	if err != nil || !gputest.Real() || len(all) >= j.gpu.cfg.WorldSize {
		return err
	}
	return j.settle()
}

// odd reports whether this rank makes another call than the others, or does not come.
func (j *gpuJob) odd() bool { return j.gpu.cfg.Rank == j.gpu.cfg.WorldSize-1 }

// disagrees returns an error unless a mismatch broke the op. In a combine, ranks on other hosts
// than the odd one may also see a timeout.
func (j *gpuJob) disagrees(err error, combine bool) error {
	err = errors.Join(err, j.settle(), j.gpu.Check())
	far := combine && j.gpu.gpu.SpansHosts()
	if !errors.Is(err, ErrMismatch) && (!far || !errors.Is(err, shmem.ErrTimeout)) {
		return fmt.Errorf("want a mismatch: %v", err)
	}
	return nil
}

// If ranks disagree, the kernels of all of them end, all report it, and the op closes.
func TestRanksThatDisagreeEnd(t *testing.T) {
	patient := func(setting) Options { return Options{} } // all ranks report it, however late one comes
	short := func(s setting) Options {
		if s.perHost == 0 {
			return patient(s)
		}
		return Options{Timeout: time.Second} // some ranks report a timeout
	}
	dispatch := func(j *gpuJob, b Batch) error {
		_, err := j.gpu.Dispatch(b)
		return err
	}
	combine := func(j *gpuJob, out Output) error {
		b := j.ones(2)
		b.Weights = b.Input
		if err := errors.Join(dispatch(j, b), j.unqueued()); err != nil {
			return err
		}
		return j.disagrees(j.gpu.Combine(out), true)
	}
	inPlace := func(j *gpuJob) Output {
		return Output{Rows: j.gpu.cfg.MaxRecv(), Hidden: j.gpu.cfg.HiddenDim, Type: Float32, InPlace: true}
	}
	for _, c := range []struct {
		what string
		opts func(s setting) Options
		call func(j *gpuJob) error
	}{
		{"shapes of a dispatch", patient, func(j *gpuJob) error {
			b := j.ones(2)
			if j.odd() {
				b.Hidden--
			}
			return j.disagrees(dispatch(j, b), false)
		}},
		{"types of a dispatch", patient, func(j *gpuJob) error {
			b := j.ones(2)
			if j.odd() {
				b.Type = BFloat16
			}
			return j.disagrees(dispatch(j, b), false)
		}},
		{"shapes of a combine", short, func(j *gpuJob) error {
			out := inPlace(j)
			if j.odd() {
				out.Hidden--
			}
			return combine(j, out)
		}},
		{"types of a combine", short, func(j *gpuJob) error {
			out := inPlace(j)
			if j.odd() {
				out.Type = BFloat16
			}
			return combine(j, out)
		}},
		{"rows of a combine that are moved on one rank", short, func(j *gpuJob) error {
			out := inPlace(j)
			if j.odd() {
				out.InPlace, out.Hidden = false, out.Hidden-1
				out.Input = j.give(make([]byte, out.Rows*out.Hidden*4))
			}
			return combine(j, out)
		}},
	} {
		t.Run(c.what, func(t *testing.T) { each(t, c.opts, c.call) })
	}
	t.Run("weights of a combine", func(t *testing.T) { // other ranks depend on them only if hosts sum
		each(t, short, func(j *gpuJob) error {
			out := inPlace(j)
			out.Weighted = j.odd()
			if j.gpu.gpu.HostsSum() {
				return combine(j, out)
			}
			b := j.ones(2)
			b.Weights = b.Input
			if err := errors.Join(dispatch(j, b), j.unqueued()); err != nil {
				return err
			}
			return errors.Join(j.gpu.Combine(out), j.settle(), j.gpu.Check())
		})
	})
}

// If a rank does not come, the calls of all others end with a timeout. If it comes late, they end
// well.
func TestRanksThatDoNotComeEndNothingElse(t *testing.T) {
	call := func(j *gpuJob) error {
		_, err := j.gpu.Dispatch(j.ones(2))
		if err == nil {
			err = j.unqueued()
		}
		if err == nil {
			out := Output{Rows: j.gpu.cfg.MaxRecv(), Hidden: j.gpu.cfg.HiddenDim, Type: Float32, InPlace: true}
			err = j.gpu.Combine(out)
		}
		return errors.Join(err, j.settle(), j.gpu.Check())
	}
	t.Run("never", func(t *testing.T) {
		each(t, func(setting) Options { return Options{Timeout: 200 * time.Millisecond} }, func(j *gpuJob) error {
			if j.odd() {
				return nil
			}
			if err := call(j); !errors.Is(err, shmem.ErrTimeout) {
				return fmt.Errorf("want a timeout: %v", err)
			}
			return nil
		})
	})
	t.Run("late", func(t *testing.T) {
		each(t, func(setting) Options { return Options{} }, func(j *gpuJob) error {
			if j.odd() {
				time.Sleep(20 * time.Millisecond)
			}
			return call(j)
		})
	})
}
