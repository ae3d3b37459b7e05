// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/internal/sys"
	lf "mori/native/libfabric"
)

// An engine is the goroutine of an open fabric. It polls libfabric's queues and passes their
// entries to the endpoints.
//
// The engine holds polling during each poll and the handling of its results. Goroutines that open
// or close polled objects hold it, too. It is taken before an endpoint's lock. So the holder can
// drain an endpoint's queue before the endpoint ends.
type engine struct {
	polling sync.Mutex
	eq      lf.FID
	queues  []lf.Queue
	turn    int
	last    uint64 // the last owner number given out
	owners  map[uint64]*endpoint
	takers  map[lf.FID]taker // of events
	out     [64]lf.Completion
	events  *lf.EventReader

	stalled atomic.Int32 // endpoints that want a retry at each poll

	fd      int // readable: poll again
	asleep  atomic.Bool
	stopped atomic.Bool
	done    chan struct{}
}

// A taker handles the events of an object: an endpoint or a listener.
type taker interface{ event(ev lf.Event) }

// The goroutine polls this often before it sleeps. While nothing arrives, its sleep doubles from
// the first to the second number of microseconds. libfabric does not wake it for peers' actions:
// providers with manual progress cannot.
const (
	looks    = 64
	napLeast = 20
	napMost  = 500
)

func newEngine(fab lf.FID) (*engine, error) {
	eq, err := lf.OpenEQ(fab)
	if err != nil {
		return nil, fmt.Errorf("open event queue of libfabric: %w", cause(err))
	}
	fd, err := sys.Event()
	if err != nil {
		_ = eq.Close()
		return nil, err
	}
	g := &engine{eq: eq, events: lf.NewEventReader(eq), fd: fd, owners: make(map[uint64]*endpoint), takers: make(map[lf.FID]taker), done: make(chan struct{})}
	go g.run()
	return g, nil
}

// stop ends the goroutine and closes the polled objects.
func (g *engine) stop() error {
	g.stopped.Store(true)
	sys.EventSet(g.fd)
	<-g.done
	return errors.Join(sys.CloseFD(g.fd), g.eq.Close())
}

// kick wakes the goroutine if it sleeps.
func (g *engine) kick() {
	if g.asleep.Load() {
		sys.EventSet(g.fd)
	}
}

func (g *engine) run() {
	defer close(g.done)
	idle, nap := 0, napLeast
	for !g.stopped.Load() {
		if g.look() {
			idle, nap = 0, napLeast
			continue
		}
		if idle++; idle < looks {
			runtime.Gosched()
			continue
		}
		g.asleep.Store(true)
		lf.Idle(g.fd, nap)
		g.asleep.Store(false)
		sys.EventClear(g.fd)
		nap = min(2*nap, napMost)
	}
}

// look polls once and reports whether there were any entries.
func (g *engine) look() bool {
	g.polling.Lock()
	defer g.polling.Unlock()
	n := g.poll(g.queues)
	ev, ok := g.events.Read()
	if ok {
		if t := g.takers[ev.FID]; t != nil {
			t.event(ev)
		} else if ev.Info != 0 {
			lf.FreeInfo(ev.Info)
		}
	}
	if g.stalled.Load() > 0 {
		for _, e := range g.owners {
			e.again()
		}
	}
	return n > 0 || ok
}

// poll reads queues and passes the completions to their endpoints. The caller holds polling.
func (g *engine) poll(queues []lf.Queue) int {
	if len(queues) == 0 {
		return 0
	}
	n, next := lf.Poll(queues, g.out[:], g.turn%len(queues))
	g.turn = next
	done := g.out[:n]
	for i := 0; i < len(done); {
		first := i
		for i++; i < len(done) && done[i].Owner == done[first].Owner; i++ {
		}
		if e := g.owners[done[first].Owner]; e != nil {
			e.completed(done[first:i])
		}
	}
	return n
}

// drain polls one queue until it is empty. The caller holds polling.
func (g *engine) drain(q lf.Queue) {
	for one := []lf.Queue{q}; g.poll(one) > 0; {
	}
}

// add makes the engine poll cq for e. The caller holds polling.
func (g *engine) add(e *endpoint, cq lf.FID) lf.Queue {
	g.last++
	q := lf.Queue{CQ: cq, Owner: g.last}
	g.owners[q.Owner] = e
	g.queues = append(g.queues, q)
	return q
}

// pause stops polling q. The caller holds polling.
func (g *engine) pause(q lf.Queue) {
	g.queues = slices.DeleteFunc(g.queues, func(o lf.Queue) bool { return o == q })
}

// resume polls q again. The caller holds polling.
func (g *engine) resume(q lf.Queue) {
	if !slices.Contains(g.queues, q) {
		g.queues = append(g.queues, q)
	}
}
