// SPDX-License-Identifier: MIT

package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/endtest"
)

// childEnv makes this program a peer that does what it reads.
const childEnv = "MORI_VERBS_CHILD"

// An order of the test to its child.
type order struct {
	Do  string // open, flood
	N   uint64
	Raw []byte // of the test's region
}

type reply struct {
	Addr fabric.Addr
	Raw  []byte
}

// A child is the peer of a test, in a process of its own.
type child struct {
	*endtest.Child
	cmd *exec.Cmd
}

// newChild starts a peer with a memory of n bytes, and connects to it.
func newChild(tb testing.TB, w way, n uint64) (a *end, c *child, key uint64) {
	tb.Helper()
	a = newEnd(tb, w)
	process := endtest.Start(tb, childEnv)
	c = &child{process, process.Cmd}
	r := c.must(tb, order{Do: "open", N: n})
	_, err := a.connector().Connect(a.ctx, r.Addr, nil)
	ok(tb, err)
	rm, err := a.dom.Import(r.Raw)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, rm.Close()) })
	return a, c, rm.Key()
}

func (c *child) must(tb testing.TB, o order) (r reply) {
	tb.Helper()
	if err := c.Ask(o, &r); err != nil {
		tb.Fatalf("child, %s: %v", o.Do, err)
	}
	return r
}

// A served is the child's side.
type served struct {
	*end
	memory   *memory
	accepted chan error
}

func childMain() int {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	e, err := openEnd(ctx, way{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p := &served{end: e, accepted: make(chan error, 1)}
	good := endtest.Serve(p.obey)
	if p.memory != nil {
		_ = p.memory.close() // the test may have ended the connection in a bad way
	}
	_ = p.close()
	if !good {
		return 1
	}
	return 0
}

func (p *served) obey(o order) (r reply, err error) {
	switch o.Do {
	case "open":
		if p.memory, err = p.openMemory(o.N); err != nil {
			return r, err
		}
		p.memory.fill(1)
		l, err := p.fab.Listen(p.ctx, nil)
		if err != nil {
			return r, err
		}
		go func() { p.accepted <- errors.Join(p.acceptAt(l), l.Close()) }()
		return reply{Addr: l.Addr(), Raw: p.memory.mr.Raw()}, nil
	case "flood":
		if err := <-p.accepted; err != nil { // who dialed may know before
			return r, err
		}
		rm, err := p.dom.Import(o.Raw)
		if err == nil {
			go p.flood(rm.Key())
		}
		return r, err
	}
	return r, fmt.Errorf("no such order: %q", o.Do)
}

// flood writes the memory to the test's region over and over, a few at a time.
func (p *served) flood(key uint64) {
	endtest.Flood(p.ctx, p.ep, p.cq, p.memory.write(p.memory.Len, key))
}
