// SPDX-License-Identifier: MIT

package mem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/mem"
)

// A world is a provider with datagram endpoints on it. It fails the test if a goroutine is left at
// the end.
type world struct {
	*testing.T
	ctx context.Context
	fab fabric.Fabric
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	fab, err := mem.New(mem.Options{Logger: slog.New(slog.DiscardHandler)}).Open(ctx, &fabric.Info{})
	if err != nil {
		t.Fatal(err)
	}
	before := carriersRun()
	w := &world{t, ctx, fab}
	t.Cleanup(func() {
		if err := fab.Close(); err != nil {
			t.Errorf("close fabric: %v", err)
		}
		for !t.Failed() {
			left := carriersRun()
			maps.DeleteFunc(left, func(id, _ string) bool { return before[id] != "" })
			if len(left) == 0 {
				break
			}
			if ctx.Err() != nil {
				t.Errorf("goroutines are left: %v", left)
			}
			runtime.Gosched()
		}
		cancel()
	})
	return w
}

// carriersRun are the stacks of the goroutines that endpoints started.
func carriersRun() map[string]string {
	buf := make([]byte, 4<<20)
	stacks := make(map[string]string)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "created by mori/core/fabric/layer/rdm") || strings.Contains(stack, "created by mori/core/provider/mem.") {
			id, _, _ := strings.Cut(stack, " [")
			stacks[id] = stack
		}
	}
	return stacks
}

// A node is a datagram endpoint with a queue for everything.
type node struct {
	*world
	dom  fabric.Domain
	ep   fabric.Endpoint
	cq   fabric.CQ
	av   fabric.AV
	name fabric.Addr
	keep [][]byte
}

// idle makes an endpoint that is bound to its queue and vector, and not enabled.
func (w *world) idle(at fabric.Addr) *node {
	w.Helper()
	in := &fabric.Info{EPType: fabric.EPRDM, Src: at}
	dom, err := w.fab.Domain(w.ctx, in)
	w.must(err)
	n := &node{world: w, dom: dom}
	n.ep, err = dom.Endpoint(in)
	w.must(err)
	n.cq, err = dom.CQ(4096)
	w.must(err)
	n.av, err = dom.AV(0)
	w.must(err)
	w.must(n.ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false))
	w.must(n.ep.BindAV(n.av))
	w.Cleanup(n.close)
	return n
}

func (w *world) node(at fabric.Addr) *node {
	w.Helper()
	n := w.idle(at)
	w.must(n.ep.Enable())
	var err error
	n.name, err = n.ep.Name()
	w.must(err)
	return n
}

func (n *node) close() {
	n.Helper()
	for _, c := range []interface{ Close() error }{n.ep, n.cq, n.av, n.dom} {
		if err := c.Close(); err != nil {
			n.Errorf("close %T: %v", c, err)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (n *node) knows(addr fabric.Addr) fabric.AVAddr {
	n.Helper()
	got, err := n.av.Insert(addr)
	n.must(err)
	return got[0]
}

// buffer is memory for an op, which n keeps alive.
func (n *node) buffer(b []byte) fabric.Seg {
	n.keep = append(n.keep, b)
	return fabric.Seg{Addr: sys.AddrOf(b), Len: uint64(len(b))}
}

// submit queues ops, which are one after the other behind those before.
func (n *node) submit(ops ...fabric.Op) {
	n.Helper()
	n.must(n.trySubmit(ops...))
}

func (n *node) trySubmit(ops ...fabric.Op) error {
	for len(ops) > 0 {
		k, err := n.ep.Submit(ops)
		if ops = ops[k:]; err != nil && !errors.Is(err, fabric.ErrAgain) || n.ctx.Err() != nil {
			return fmt.Errorf("submit, %d ops left: %w", len(ops), err)
		}
		runtime.Gosched()
	}
	return nil
}

func (n *node) send(to fabric.AVAddr, text string, ctx uint64) {
	n.Helper()
	n.submit(fabric.Op{Kind: fabric.OpSend, Dest: to, Seg: n.buffer([]byte(text)), Ctx: ctx})
}

func (n *node) recv(size int, ctx uint64) []byte {
	n.Helper()
	b := make([]byte, size)
	n.submit(fabric.Op{Kind: fabric.OpRecv, Seg: n.buffer(b), Ctx: ctx})
	return b
}

// read waits for an entry of either kind; Err says which.
func (n *node) read() fabric.ErrEntry {
	n.Helper()
	e, err := n.tryRead()
	n.must(err)
	return e
}

func (n *node) tryRead() (e fabric.ErrEntry, err error) {
	for {
		var dst [1]fabric.Completion
		k, err := n.cq.Wait(n.ctx, dst[:])
		if k == 1 {
			return fabric.ErrEntry{Completion: dst[0]}, nil
		}
		if errors.Is(err, fabric.ErrAvail) {
			if err := n.cq.ReadErr(&e); err == nil {
				return e, nil
			}
			continue
		}
		if err != nil {
			return e, err
		}
	}
}

// ok waits for the success of the op of this kind and context.
func (n *node) ok(kind fabric.OpKind, ctx uint64) fabric.Completion {
	n.Helper()
	if e := n.read(); e.Err != 0 || e.Kind != kind || e.Ctx != ctx {
		n.Fatalf("op %d: %v; want success of %v %d", e.Ctx, &e, kind, ctx)
	} else {
		return e.Completion
	}
	return fabric.Completion{}
}
