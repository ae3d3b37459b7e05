// SPDX-License-Identifier: MIT

package verbs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"mori/core/fabric"
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
	Err  string
}

// A child is the peer of a test, in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// newChild starts a peer with a memory of n bytes, and connects to it.
func newChild(tb testing.TB, w way, n uint64) (a *end, c *child, key uint64) {
	tb.Helper()
	a = newEnd(tb, w)
	c = &child{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	c.cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = os.Stderr
	var err error
	c.in, err = c.cmd.StdinPipe()
	ok(tb, err)
	out, err := c.cmd.StdoutPipe()
	ok(tb, err)
	c.out = bufio.NewScanner(out)
	ok(tb, c.cmd.Start())
	tb.Cleanup(c.end)
	r := c.must(tb, order{Do: "open", N: n})
	_, err = a.connector().Connect(a.ctx, r.Addr, nil)
	ok(tb, err)
	rm, err := a.dom.Import(r.Raw)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, rm.Close()) })
	return a, c, rm.Key()
}

// end lets the child go, and waits for it.
func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Wait() // it may have been killed
}

func (c *child) must(tb testing.TB, o order) (r reply) {
	tb.Helper()
	b, err := json.Marshal(o)
	ok(tb, err)
	_, err = c.in.Write(append(b, '\n'))
	ok(tb, err)
	if !c.out.Scan() {
		tb.Fatalf("child, %s: it ended: %v", o.Do, c.out.Err())
	}
	if err := json.Unmarshal(c.out.Bytes(), &r); err != nil || r.Err != "" {
		tb.Fatalf("child, %s: %q, %v", o.Do, c.out.Text(), err)
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
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var o order
		err := json.Unmarshal(in.Bytes(), &o)
		var r reply
		if err == nil {
			r, err = p.obey(o)
		}
		if err != nil {
			r.Err = err.Error()
		}
		if out.Encode(r) != nil {
			return 1
		}
	}
	if p.memory != nil {
		_ = p.memory.close() // the test may have ended the connection in a bad way
	}
	_ = p.close()
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
	op := p.memory.write(p.memory.Len, key)
	for range 4 {
		if p.submit(op) != nil {
			return
		}
	}
	for {
		if _, err := p.next(); err != nil || p.submit(op) != nil {
			return
		}
	}
}
