// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
)

// Collective calls are held against plain copies of the bytes that must move, made by all PEs at
// once between the same mappings.

const (
	benchPart = 1 << 20 // bytes that each PE has for each
	benchHeap = 64 << 20
)

// moved are the bytes that PE 0 of n must write or read with parts of the given size.
var moved = map[string]func(n, part uint64) uint64{
	"broadcast": func(_, part uint64) uint64 { return part },
	"fcollect":  func(n, part uint64) uint64 { return n * part },
	"alltoall":  func(n, part uint64) uint64 { return n * part },
	"reduce":    func(n, part uint64) uint64 { return 2 * part * (n - 1) / n }, // its part of the others' sources, the others' parts of the result
}

// calls are the collective calls with parts of n bytes.
var calls = map[string]func(team *Team, dest, src, n uint64) error{
	"broadcast": func(team *Team, dest, src, n uint64) error { return team.Broadcast(dest, src, n, 1) },
	"fcollect":  (*Team).FCollect,
	"alltoall":  (*Team).AllToAll,
	"reduce": func(team *Team, dest, src, n uint64) error {
		return team.Reduce(ReduceSum, fabric.Float32, dest, src, n/4)
	},
}

func init() {
	for name, f := range calls {
		for size, n := range map[string]uint64{"small": 8, "large": benchPart} {
			jobs[name+" "+size] = func(w *World, rounds int) (time.Duration, error) {
				dest, src, err := buffers(w)
				if err != nil {
					return 0, err
				}
				return timed(w, rounds, func() error { return f(w.TeamWorld(), dest, src, n) })
			}
		}
		jobs[name+" copies"] = func(w *World, rounds int) (time.Duration, error) {
			dest, src, err := buffers(w)
			if err != nil {
				return 0, err
			}
			return timed(w, rounds, func() error { return copies(w, dest, src, moved[name](uint64(w.pes.N), benchPart)) })
		}
	}
}

func buffers(w *World) (dest, src uint64, err error) {
	dest, err = w.Malloc(uint64(w.pes.N) * benchPart)
	src, err2 := w.Malloc(uint64(w.pes.N) * benchPart)
	return dest, src, errors.Join(err, err2)
}

// copies copies n bytes from here to the other PEs, a part to each in turn.
func copies(w *World, dest, src, n uint64) error {
	for i := 1; n > 0; i++ {
		part := min(n, benchPart)
		pe := (w.pes.Me + i) % w.pes.N
		if pe == w.pes.Me && w.pes.N > 1 {
			continue
		}
		memory.Copy(w.Ptr(dest, pe)+uint64(w.pes.Me)*benchPart, src+uint64(pe)*benchPart, part)
		n -= part
	}
	return nil
}

// BenchmarkCollective reports how long a call of 8 bytes takes, and how fast one of a MiB is beside
// copies.
func BenchmarkCollective(b *testing.B) {
	for _, n := range []int{2, 8} {
		for _, name := range []string{"broadcast", "fcollect", "alltoall", "reduce"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				rounds := max(b.N, 20)
				small := processes(b, n, name+" small", 50*rounds, benchHeap)
				large := processes(b, n, name+" large", rounds, benchHeap)
				raw := processes(b, n, name+" copies", rounds, benchHeap)
				bytes := float64(moved[name](uint64(n), benchPart)) * float64(rounds)
				b.ReportMetric(float64(small.Nanoseconds())/1e3/float64(50*rounds), "us/8B")
				b.ReportMetric(bytes/float64(large.Nanoseconds()), "GB/s")
				b.ReportMetric(float64(raw)/float64(large), "of-copies")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
