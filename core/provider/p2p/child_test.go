// SPDX-License-Identifier: MIT

package p2p

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/endtest"
	"mori/native/gpu/gputest"
)

// childEnv makes this program a peer that does what it reads.
const childEnv = "MORI_P2P_CHILD"

// An order of the test to its child.
type command struct {
	Do   string // open, fill, check, close, flood, path
	Dev  int
	Skip uint64
	N    uint64
	Seed int
	Raw  []byte // of the test's region
}

type reply struct {
	Addr fabric.Addr
	Raw  []byte
	Live bool // it is flooding
	Path string
}

// A child is the peer of a test, in a process of its own.
type child struct {
	*endtest.Child
	cmd *exec.Cmd
}

// newChild starts a peer with a memory of n bytes behind skip, on a device or the host, and
// connects to it.
func newChild(tb testing.TB, dev int, skip, n uint64) (a *end, c *child, key uint64) {
	tb.Helper()
	return newChildWith(tb, Options{}, dev, skip, n)
}

func newChildWith(tb testing.TB, opts Options, dev int, skip, n uint64) (a *end, c *child, key uint64) {
	tb.Helper()
	a = newEnd(tb, opts)
	process := endtest.Start(tb, childEnv)
	c = &child{process, process.Cmd}
	r := c.must(tb, command{Do: "open", Dev: dev, Skip: skip, N: n})
	_, err := a.connector().Connect(a.ctx, r.Addr, nil)
	ok(tb, err)
	return a, c, a.imports(tb, r.Raw)
}

func (c *child) must(tb testing.TB, o command) (r reply) {
	tb.Helper()
	if err := c.Ask(o, &r); err != nil {
		tb.Fatalf("child, %s: %v", o.Do, err)
	}
	return r
}

// A peer is the child's side.
type peer struct {
	*end
	memory   *registered
	accepted chan error
}

func childMain() int {
	gputest.Start()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	e, err := openEnd(ctx, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p := &peer{end: e, accepted: make(chan error, 1)}
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

func (p *peer) obey(o command) (r reply, err error) {
	switch o.Do {
	case "open":
		if p.memory, err = p.openMemory(o.Dev, o.Skip, o.N); err != nil {
			return r, err
		}
		l, err := p.fab.Listen(p.ctx, nil)
		if err != nil {
			return r, err
		}
		go func() { p.accepted <- errors.Join(p.acceptAt(l), l.Close()) }()
		return reply{Addr: l.Addr(), Raw: p.memory.mr.Raw()}, nil
	case "fill":
		return r, p.memory.put(0, pattern(p.memory.Len, o.Seed))
	case "check":
		b, err := p.memory.get(0, p.memory.Len)
		if err != nil {
			return r, err
		}
		return r, same(b, pattern(p.memory.Len, o.Seed))
	case "close":
		err := p.memory.close()
		p.memory = nil
		return r, err
	case "path":
		return reply{Path: p.path()}, nil
	case "flood":
		err := <-p.accepted // who dialed may know before
		p.accepted <- err
		if err != nil {
			return r, err
		}
		rm, err := p.dom.Import(o.Raw)
		if err != nil {
			return r, err
		}
		go p.flood(rm.Key(), o.N)
		return reply{Live: true}, nil
	}
	return r, fmt.Errorf("no such command: %q", o.Do)
}

// flood writes n bytes of the memory to the test's region over and over, a few at a time.
func (p *peer) flood(key, n uint64) {
	op := fabric.Op{Kind: fabric.OpWrite, Seg: p.memory.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
	endtest.Flood(p.ctx, p.ep, p.cq, op)
}
