// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"mori/native/gpu/gputest"
	"mori/shmem"
)

// repeats is how often a test repeats each way in which ranks disagree or do not come: MORI_TEST_REPEAT, else a number that tests can spare.
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

// A setting is the kernels of an op, and on how many hosts its ranks are.
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

// each runs f on the ranks of each setting, as often as repeats says. Every other time the last lane of each kernel begins late, so that it finds what the
// others have done meanwhile.
func each(t *testing.T, opts Options, f func(j *gpuJob) error) {
	gputest.Need(t)
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			for i := range repeats(t) {
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					if i%2 == 1 && !gputest.Real() {
						gputest.Late(t, 30*time.Millisecond)
					}
					c := hostsConfig(s.world, s.kernel)
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

// odd is the rank that calls otherwise than the others, or does not come.
func (j *gpuJob) odd() bool { return j.gpu.cfg.Rank == j.gpu.cfg.WorldSize-1 }

// disagrees is an error unless the op is broken by a mismatch. Ranks on other hosts than the odd one may only see that rows do not come.
func (j *gpuJob) disagrees(err error) error {
	err = errors.Join(err, j.settle(), j.gpu.Check())
	far := j.gpu.gpu.hosts != nil
	if !errors.Is(err, ErrMismatch) && (!far || !errors.Is(err, shmem.ErrTimeout)) {
		return fmt.Errorf("want a mismatch: %v", err)
	}
	return nil
}

// However ranks disagree, the kernels of all of them end, they are told why, and the op closes.
func TestRanksThatDisagreeEnd(t *testing.T) {
	opts := Options{Timeout: 500 * time.Millisecond}
	dispatch := func(j *gpuJob, b Batch) error {
		_, err := j.gpu.Dispatch(b)
		return err
	}
	combine := func(j *gpuJob, out Output) error {
		b := j.ones(2)
		b.Weights = b.Input
		if err := dispatch(j, b); err != nil {
			return err
		}
		return j.disagrees(j.gpu.Combine(out))
	}
	inPlace := func(j *gpuJob) Output {
		return Output{Rows: j.gpu.cfg.MaxRecv(), Hidden: j.gpu.cfg.HiddenDim, Type: Float32, InPlace: true}
	}
	for _, c := range []struct {
		what string
		call func(j *gpuJob) error
	}{
		{"shapes of a dispatch", func(j *gpuJob) error {
			b := j.ones(2)
			if j.odd() {
				b.Hidden--
			}
			return j.disagrees(dispatch(j, b))
		}},
		{"types of a dispatch", func(j *gpuJob) error {
			b := j.ones(2)
			if j.odd() {
				b.Type = BFloat16
			}
			return j.disagrees(dispatch(j, b))
		}},
		{"shapes of a combine", func(j *gpuJob) error {
			out := inPlace(j)
			if j.odd() {
				out.Hidden--
			}
			return combine(j, out)
		}},
		{"types of a combine", func(j *gpuJob) error {
			out := inPlace(j)
			if j.odd() {
				out.Type = BFloat16
			}
			return combine(j, out)
		}},
		{"rows of a combine that are moved on one rank", func(j *gpuJob) error {
			out := inPlace(j)
			if j.odd() {
				out.InPlace, out.Hidden = false, out.Hidden-1
				out.Input = j.give(make([]byte, out.Rows*out.Hidden*4))
			}
			return combine(j, out)
		}},
	} {
		t.Run(c.what, func(t *testing.T) { each(t, opts, c.call) })
	}
	t.Run("weights of a combine", func(t *testing.T) { // they matter to others only where hosts sum
		each(t, opts, func(j *gpuJob) error {
			out := inPlace(j)
			out.Weighted = j.odd()
			if j.gpu.gpu.hosts.sums() {
				return combine(j, out)
			}
			b := j.ones(2)
			b.Weights = b.Input
			return errors.Join(dispatch(j, b), j.gpu.Combine(out), j.settle(), j.gpu.Check())
		})
	})
}

// A rank that does not come ends the calls of all others with a timeout, and a rank that comes late ends nothing.
func TestRanksThatDoNotComeEndNothingElse(t *testing.T) {
	call := func(j *gpuJob) error {
		_, err := j.gpu.Dispatch(j.ones(2))
		if err == nil {
			out := Output{Rows: j.gpu.cfg.MaxRecv(), Hidden: j.gpu.cfg.HiddenDim, Type: Float32, InPlace: true}
			err = j.gpu.Combine(out)
		}
		return errors.Join(err, j.settle(), j.gpu.Check())
	}
	t.Run("never", func(t *testing.T) {
		each(t, Options{Timeout: 200 * time.Millisecond}, func(j *gpuJob) error {
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
		each(t, Options{}, func(j *gpuJob) error {
			if j.odd() {
				time.Sleep(20 * time.Millisecond)
			}
			return call(j)
		})
	})
}
