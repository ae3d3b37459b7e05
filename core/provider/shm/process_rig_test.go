// SPDX-License-Identifier: MIT

package shm

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A node is an open provider with one endpoint's queues.
type node struct {
	fab fabric.Fabric
	dom fabric.Domain
	cq  fabric.CQ
	eq  fabric.EQ
	ep  fabric.Endpoint
	in  *fabric.Info
}

func openNode(ctx context.Context, opts Options) (*node, error) {
	opts.Log = quiet
	p := New(opts)
	infos, err := p.GetInfo(ctx, "", "", nil)
	if err != nil {
		return nil, err
	}
	n := &node{in: infos[0]}
	if n.fab, err = p.Open(ctx, n.in); err != nil {
		return nil, err
	}
	if n.dom, err = n.fab.Domain(ctx, n.in); err != nil {
		return nil, err
	}
	if n.cq, err = n.dom.CQ(1024); err != nil {
		return nil, err
	}
	if n.eq, err = n.fab.EQ(16); err != nil {
		return nil, err
	}
	if n.ep, err = n.dom.Endpoint(n.in); err != nil {
		return nil, err
	}
	return n, errors.Join(n.ep.BindCQ(n.cq, fabric.DirTransmit|fabric.DirRecv, false), n.ep.BindEQ(n.eq), n.ep.Enable())
}

func (n *node) close() error {
	return errors.Join(n.ep.Close(), n.cq.Close(), n.eq.Close(), n.dom.Close(), n.fab.Close())
}

// targetProcess listens, grants a region, and obeys its input.
func targetProcess() {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "target:", err)
			os.Exit(1)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	n, err := openNode(ctx, Options{})
	must(err)
	lis, err := n.fab.Listen(ctx, n.in)
	must(err)
	m, err := sys.Alloc(regionBytes)
	must(err)
	mr, err := n.dom.Reg(fabric.Buffer{Addr: sys.AddrOf(m), Len: regionBytes}, allRights, regionKey(1))
	must(err)
	fmt.Println(lis.Addr(), hex.EncodeToString(mr.Raw()), sys.AddrOf(m))
	req, err := lis.Accept(ctx)
	must(err)
	must(n.ep.(fabric.Connector).Accept(ctx, req, nil))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "close region":
			must(mr.Close())
			clear(m)
		case "free":
			must(sys.Free(m))
		case "stray":
			for i, v := range m {
				if v != 0 {
					must(fmt.Errorf("byte %d was written after the region closed", i))
				}
			}
		case "path":
			fmt.Println(n.ep.(fabric.Prober).Path())
			continue
		case "fork":
			// A child without exec would have the same effect: another process keeps the socket
			// open.
			cmd := exec.Command("sleep", "30")
			for _, fd := range openSocketsOf() {
				cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), "socket"))
			}
			must(cmd.Start())
			fmt.Println(cmd.Process.Pid)
			continue
		case "wait data":
			got := make([]fabric.Completion, 1)
			_, err := n.cq.Wait(ctx, got)
			must(err)
			fmt.Println(got[0].Data, m[0])
			continue
		}
		fmt.Println("done")
	}
}

// initiatorProcess connects to the address on its first input line and writes into the region
// continuously.
func initiatorProcess() {
	var addr, rawHex string
	_, err := fmt.Scan(&addr, &rawHex)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	n, err2 := openNode(ctx, Options{})
	raw, err3 := hex.DecodeString(rawHex)
	if err = errors.Join(err, err2, err3); err != nil {
		panic(err)
	}
	if _, err := n.ep.(fabric.Connector).Connect(ctx, fabric.Addr(addr), nil); err != nil {
		panic(err)
	}
	remote, err := n.dom.Import(raw)
	if err != nil {
		panic(err)
	}
	m, err := sys.Alloc(regionBytes)
	if err != nil {
		panic(err)
	}
	for i := range m {
		m[i] = 1
	}
	op := fabric.Op{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: sys.AddrOf(m), Len: regionBytes}, RSeg: fabric.RSeg{Len: regionBytes, Key: remote.Key()}}
	done := make([]fabric.Completion, 64)
	for ctx.Err() == nil {
		if _, err := n.ep.Submit([]fabric.Op{op}); errors.Is(err, fabric.ErrAgain) {
			_, _ = n.cq.Wait(ctx, done)
		}
	}
}

// openSocketsOf duplicates this process's sockets.
func openSocketsOf() (fds []int) {
	for fd := 3; fd < 64; fd++ {
		if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && strings.HasPrefix(to, "socket:") {
			if d, err := syscall.Dup(fd); err == nil {
				fds = append(fds, d)
			}
		}
	}
	return fds
}

// A target is a second process with a region, and this process's endpoint connected to it.
type target struct {
	*node
	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	key uint64

	base uint64 // address of the region in the target
}

func startTarget(t testing.TB, opts Options) *target {
	t.Helper()
	return startTargetAs(t, opts, nil)
}

// startTargetAs skips the test if this process may not start a target with these attributes.
func startTargetAs(t testing.TB, opts Options, attr *syscall.SysProcAttr) *target {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=target")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	if attr != nil && errors.Is(err, fs.ErrPermission) {
		t.Skipf("start a process with %+v: %v", attr, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	p := &target{tb: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	var addr, rawHex string
	if _, err := fmt.Sscan(p.line(), &addr, &rawHex, &p.base); err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(rawHex)
	if err != nil {
		t.Fatal(err)
	}
	if p.node, err = openNode(ctx, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.node.close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := p.ep.(fabric.Connector).Connect(ctx, fabric.Addr(addr), nil); err != nil {
		t.Fatal(err)
	}
	remote, err := p.dom.Import(raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close() })
	p.key = remote.Key()
	return p
}

func (p *target) line() string {
	p.tb.Helper()
	if !p.out.Scan() {
		p.tb.Fatalf("the target said no more: %v", p.out.Err())
	}
	return p.out.Text()
}

// do lets the target execute a command and returns its reply.
func (p *target) do(what string) string {
	p.tb.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.tb.Fatal(err)
	}
	return p.line()
}

func (p *target) op(kind fabric.OpKind, local []byte) fabric.Op {
	n := uint64(len(local))
	return fabric.Op{Kind: kind, Seg: fabric.Seg{Addr: sys.AddrOf(local), Len: n}, RSeg: fabric.RSeg{Len: n, Key: p.key}}
}

// run submits one op and waits for its end.
func (p *target) run(op fabric.Op) error {
	p.tb.Helper()
	if _, err := p.ep.Submit([]fabric.Op{op}); err != nil {
		return err
	}
	return p.wait()
}

func (p *target) wait() error {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tb.Context(), 30*time.Second)
	defer cancel()
	_, err := p.cq.Wait(ctx, make([]fabric.Completion, 1))
	if errors.Is(err, fabric.ErrAvail) {
		var e fabric.ErrEntry
		if err := p.cq.ReadErr(&e); err != nil {
			p.tb.Fatal(err)
		}
		return &e
	}
	if err != nil {
		p.tb.Fatal(err)
	}
	return nil
}

// ended waits for the event at the end of the connection and returns its error.
func (p *target) ended() error {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tb.Context(), 10*time.Second)
	defer cancel()
	for {
		e, err := p.eq.Wait(ctx)
		if err != nil {
			p.tb.Fatalf("waiting for the end: %v", err)
		}
		if e.Kind == fabric.EventShutdown {
			return e.Err
		}
	}
}
