// SPDX-License-Identifier: MIT

package meter

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

func name(code uint32) string { return fmt.Sprint(code) }

func TestEveryTransferIsCountedOnce(t *testing.T) {
	var s Set
	p := s.Path("b", "tcp")
	if p != s.Path("b", "tcp") || p == s.Path("b", "shm") || p == s.Path("c", "tcp") {
		t.Fatal("paths are mixed up")
	}
	r, w := p.Op(true), p.Op(false)
	for range 10 {
		r.Enter()
		w.Enter()
	}
	w.Moved(4096)
	w.Succeeded(3 * time.Microsecond)
	w.Failed(13, false)
	w.Failed(14, true)
	w.Failed(15, false)
	w.Failed(99, false)
	w.Failed(2, false)
	w.MovedOn(true)
	w.MovedOn(false)
	got := s.Peers(name)[0].Paths[1]
	if got.Path != "tcp" || got.Read.InFlight != 10 || got.Read.Transfers != 0 {
		t.Errorf("reads: %+v", got.Read)
	}
	if o := got.Write; o.InFlight != 2 || o.Transfers != 1 || o.Bytes != 4096 || o.Failed != 5 || o.Canceled != 1 || o.Replays != 1 {
		t.Errorf("writes: %+v", o)
	}
	if f := fmt.Sprint(got.Write.Failures); f != "map[13:1 14:1 15:1 16:2]" {
		t.Errorf("failures by code: %s", f)
	}
	if tot := s.Totals(); tot != (Totals{Writes: 1, WriteBytes: 4096, Failed: 5, Canceled: 1, Replays: 1}) {
		t.Errorf("totals %+v", tot)
	}
}

func TestPathsAreBoundedAndTotalsLoseNothing(t *testing.T) {
	var s Set
	busy := s.Path("busy", "tcp").Op(false)
	busy.Enter()
	const n = maxPaths + 100
	for i := range n {
		o := s.Path(fmt.Sprint("peer", i), "tcp").Op(true)
		o.Enter()
		o.Moved(2)
		o.Succeeded(1)
	}
	if len(s.paths) != maxPaths || len(s.age) != maxPaths {
		t.Errorf("%d paths kept, want %d", len(s.paths), maxPaths)
	}
	if tot := s.Totals(); tot.Reads != n || tot.ReadBytes != 2*n {
		t.Errorf("totals %+v, want %d reads", tot, n)
	}
	if s.Path("busy", "tcp").Op(false) != busy {
		t.Error("a path with a transfer in flight was forgotten")
	}
}

// Readers see consistent numbers while other goroutines write, and complete ones at the end.
func TestBookingWhileOthersRead(t *testing.T) {
	const workers, rounds = 4, 2000
	var s Set
	var ring Ring
	var writers, readers sync.WaitGroup
	quit := make(chan struct{})
	readers.Add(1)
	go func() {
		defer readers.Done()
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
			}
			s.Sample(time.Duration(i) * sampleEvery)
			for _, p := range s.Peers(name) {
				for _, q := range p.Paths {
					// A transfer that begins and ends during the read counts as in flight.
					if q.Write.Transfers+q.Write.InFlight > workers*rounds {
						t.Errorf("%+v", q.Write)
						return
					}
				}
			}
			for _, r := range ring.Records() {
				if r.UID != r.Bytes || r.Path == nil {
					t.Errorf("a torn record: %+v", r)
					return
				}
			}
		}
	}()
	for w := range workers {
		writers.Add(1)
		go func() {
			defer writers.Done()
			p := s.Path("b", "tcp")
			for i := range rounds {
				p.Op(false).Enter()
				p.Op(false).Moved(1)
				p.Op(false).Succeeded(time.Duration(i))
				n := uint64(w*rounds + i)
				ring.Add(&Record{UID: n, Bytes: n, Path: p})
			}
		}()
	}
	writers.Wait()
	close(quit)
	readers.Wait()
	if o := s.Peers(name)[0].Paths[0].Write; o.Transfers != workers*rounds || o.Bytes != workers*rounds || o.InFlight != 0 {
		t.Errorf("%+v", o)
	}
	if n := len(ring.Records()); n != Kept {
		t.Errorf("%d records of %d transfers, want %d", n, workers*rounds, Kept)
	}
}

func TestTheRingKeepsTheLast(t *testing.T) {
	var r Ring
	if len(r.Records()) != 0 {
		t.Fatal("an empty ring has records")
	}
	at := time.Unix(1e9, 0)
	for i := range uint64(Kept + 300) {
		r.Add(&Record{UID: i, Start: at.Add(time.Duration(i)), Took: time.Duration(i * 7919 % 5000)})
	}
	all := r.Records()
	if len(all) != Kept || all[0].UID != 300 || all[Kept-1].UID != Kept+299 {
		t.Fatalf("%d records, from %d to %d", len(all), all[0].UID, all[len(all)-1].UID)
	}
	slow := Slowest(all, 5)
	if len(slow) != 5 || slow[0].Took < slow[4].Took || all[0].UID != 300 {
		t.Errorf("slowest: %+v", slow)
	}
	for _, x := range all {
		if x.Took > slow[0].Took {
			t.Fatalf("%v is slower than the slowest, %v", x.Took, slow[0].Took)
		}
	}
}

func TestBookingDoesNotAllocate(t *testing.T) {
	var s Set
	var ring Ring
	p := s.Path("b", "tcp")
	if n := testing.AllocsPerRun(Kept, func() { book(p, &ring, time.Time{}) }); n != 0 {
		t.Errorf("%v allocations per transfer", n)
	}
}

func book(p *Path, ring *Ring, at time.Time) {
	o := p.Op(false)
	o.Enter()
	o.Moved(4096)
	o.Succeeded(20 * time.Microsecond)
	ring.Add(&Record{Start: at, FirstOp: 1, LastOp: 2, Took: 3, Bytes: 4096, Total: 4096, Path: p, Ops: 1})
}

// BenchmarkBooking measures everything that a transfer of one op costs in this package.
func BenchmarkBooking(b *testing.B) {
	var s Set
	var ring Ring
	p := s.Path("b", "tcp")
	at := time.Now()
	for range Kept {
		book(p, &ring, at)
	}
	b.ReportAllocs()
	for b.Loop() {
		book(p, &ring, at)
	}
}
