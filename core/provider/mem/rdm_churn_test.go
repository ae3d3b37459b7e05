// SPDX-License-Identifier: MIT

package mem_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"mori/core/fabric"
)

// A comer is a node under a name that comes and goes. It counts its ops.
type comer struct {
	*node
	taken, ended int
	closing      chan struct{} // nil while it is open
}

// TestPeersComeAndGo opens and closes endpoints at random while they send to one another: each op
// ends once, and those that are open are reached in the end.
func TestPeersComeAndGo(t *testing.T) {
	const names, steps = 5, 3000
	for seed := range uint64(8) {
		w := newWorld(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		var all [names]*comer
		for step := range steps {
			c := all[rng.IntN(names)]
			i := step % names
			switch {
			case all[i] == nil || all[i].closing != nil && rng.IntN(10) == 0:
				all[i] = w.comes(i, all[i])
			case c == nil || c.closing != nil:
			case rng.IntN(60) == 0:
				c.goes()
			case rng.IntN(2) == 0:
				c.try(fabric.Op{Kind: fabric.OpRecv})
			default:
				flags := []fabric.OpFlags{0, fabric.OpDeliveryComplete, fabric.OpFence}[rng.IntN(3)]
				c.try(fabric.Op{Kind: fabric.OpSend, Dest: fabric.AVAddr(1 + rng.IntN(names)), Flags: flags})
			}
			if c != nil && c.closing == nil {
				c.drain()
			}
		}
		for i := range all {
			if all[i] == nil || all[i].closing != nil {
				all[i] = w.comes(i, all[i])
			}
			for range steps / 4 { // nobody waits for a receive any more
				all[i].try(fabric.Op{Kind: fabric.OpRecv})
				all[i].drain()
			}
		}
		for _, from := range all {
			for to := range all {
				from.reaches(fabric.AVAddr(1 + to))
			}
		}
		for _, c := range all {
			c.goes()
			c.gone()
		}
	}
}

// comes opens the endpoint of name i, once the one before has gone.
func (w *world) comes(i int, before *comer) *comer {
	w.Helper()
	if before != nil {
		before.gone()
	}
	c := &comer{node: w.node(fabric.Addr(fmt.Sprint("peer-", i)))}
	for j := range 5 {
		c.knows(fabric.Addr(fmt.Sprint("peer-", j)))
	}
	return c
}

// try submits an op that may find the queue full.
func (c *comer) try(op fabric.Op) {
	c.Helper()
	n, err := c.ep.Submit([]fabric.Op{op})
	if err != nil && !errors.Is(err, fabric.ErrAgain) {
		c.Fatal(err)
	}
	c.taken += n
}

// drain reads what is there.
func (c *comer) drain() {
	c.Helper()
	for {
		var dst [16]fabric.Completion
		var e fabric.ErrEntry
		k, err := c.cq.Read(dst[:])
		if errors.Is(err, fabric.ErrAvail) && c.cq.ReadErr(&e) == nil {
			if e.Kind == fabric.OpSend && e.Err != fabric.ErrConnReset && e.Err != fabric.ErrConnRefused && e.Err != fabric.ErrCanceled {
				c.Fatalf("%s: %v", c.name, &e)
			}
			k = 1
		}
		if k == 0 {
			return
		}
		c.ended += k
	}
}

func (c *comer) goes() {
	c.closing = make(chan struct{})
	go func() {
		_ = c.ep.Close()
		close(c.closing)
	}()
}

// gone waits until c has closed, and fails the test unless all its ops have ended.
func (c *comer) gone() {
	c.Helper()
	<-c.closing
	c.drain()
	if c.ended != c.taken {
		c.Fatalf("%s: %d of %d ops ended", c.name, c.ended, c.taken)
	}
	c.close()
}

// reaches sends until a send succeeds: those on an old connection may fail.
func (c *comer) reaches(to fabric.AVAddr) {
	c.Helper()
	for c.ctx.Err() == nil {
		c.submit(fabric.Op{Kind: fabric.OpSend, Dest: to, Ctx: 1 << 40})
		c.taken++
		for {
			e := c.read()
			c.ended++
			if e.Ctx != 1<<40 {
				continue
			}
			if e.Err == 0 {
				return
			}
			break
		}
	}
	c.Fatalf("%s does not reach %d", c.name, to)
}
