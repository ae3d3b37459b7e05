// SPDX-License-Identifier: MIT

package pybind

import (
	"fmt"
	"math"
	"time"

	"mori/shmem"
)

// A trial is one run of an operation that is measured: rounds of it in a row.
type trial struct {
	dest, source, n uint64
	target, rounds  int
	first           uint64 // rounds made before
}

// trials are what BenchShmem can do. Each has a loop of its own: a call through a function would count in operations that take nanoseconds.
var trials = map[string]func(p *pe, t trial) error{
	"put": func(p *pe, t trial) error {
		for range t.rounds {
			if err := p.Put(t.dest, t.source, t.n, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"put_quiet": func(p *pe, t trial) error {
		for range t.rounds {
			if err := p.Put(t.dest, t.source, t.n, t.target); err != nil {
				return err
			}
			if err := p.Quiet(); err != nil {
				return err
			}
		}
		return nil
	},
	"get": func(p *pe, t trial) error {
		for range t.rounds {
			if err := p.Get(t.source, t.dest, t.n, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"swap": func(p *pe, t trial) error {
		for i := range t.rounds {
			if _, err := p.FetchAtomic(shmem.AtomicSwap, 8, t.dest, t.first+uint64(i)+1, 0, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"compare_swap": func(p *pe, t trial) error {
		for i := range t.rounds {
			old := t.first + uint64(i)
			if _, err := p.FetchAtomic(shmem.AtomicCompareSwap, 8, t.dest, old+1, old, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"fetch_add": func(p *pe, t trial) error {
		for range t.rounds {
			if _, err := p.FetchAtomic(shmem.AtomicFetchAdd, 8, t.dest, 1, 0, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"barrier": func(p *pe, t trial) error {
		for range t.rounds {
			if err := p.BarrierAll(); err != nil {
				return err
			}
		}
		return nil
	},
}

// BenchShmem does an operation rounds times in a row, without Python between, and that runs times: put (n bytes from source to the symmetric dest
// of PE target), put_quiet, get (the other way), swap, compare_swap and fetch_add (of the word at dest, which counts the rounds; for
// compare_swap it begins at 0), barrier (of all PEs, which all call). It returns the nanoseconds of a round in the fastest run.
func BenchShmem(what string, dest uint64, source uint64, n uint64, target int, rounds int, runs int) (ns float64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	try, ok := trials[what]
	if !ok || rounds < 1 || runs < 1 {
		return 0, fmt.Errorf("measure %q, %d rounds %d times: %w", what, rounds, runs, shmem.ErrInvalid)
	}
	t, best := trial{dest: dest, source: source, n: n, target: target, rounds: rounds}, math.Inf(1)
	for range runs {
		begin := time.Now()
		if err := try(p, t); err != nil {
			return 0, err
		}
		best = min(best, float64(time.Since(begin).Nanoseconds())/float64(rounds))
		t.first += uint64(rounds)
	}
	return best, nil
}
