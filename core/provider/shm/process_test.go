// SPDX-License-Identifier: MIT

package shm

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

const regionBytes = 64 << 20

func TestPathToAnotherProcess(t *testing.T) {
	for _, tt := range []struct {
		opts         Options
		path, reason string
	}{
		{Options{}, "cma", "process_vm_readv"},
		{Options{ForceStream: true}, "stream", "requested"},
		{Options{refuse: syscall.EPERM}, "stream", "not permitted"},
	} {
		p := startTarget(t, tt.opts)
		path, reason := p.ep.(fabric.Prober).Path()
		if path != tt.path || !strings.Contains(reason, tt.reason) {
			t.Errorf("%s (%s), want %s (%s)", path, reason, tt.path, tt.reason)
		}
		local, _ := memory(t, 1<<20)
		for i := range local {
			local[i] = byte(i * 7)
		}
		if err := p.run(p.op(fabric.OpWrite, local)); err != nil {
			t.Fatalf("%s: write: %v", path, err)
		}
		back, _ := memory(t, 1<<20)
		if err := p.run(p.op(fabric.OpRead, back)); err != nil || string(back) != string(local) {
			t.Fatalf("%s: read back: %v", path, err)
		}
	}
}

// Here the kernel really refuses one direction: the target cannot access this process, but this
// process can access the target.
func TestKernelRefusesOneDirection(t *testing.T) {
	for name, tt := range map[string]struct {
		attr *syscall.SysProcAttr
		want string
	}{
		"pid namespace": {&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "stream the peer's process is not visible in this PID namespace"},
		"another user":  {&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "stream process_vm_readv on process"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startTargetAs(t, Options{}, tt.attr)
			if path, reason := p.ep.(fabric.Prober).Path(); path != "cma" {
				t.Errorf("here: %s, %s", path, reason)
			}
			if got := p.do("path"); !strings.HasPrefix(got, tt.want) {
				t.Errorf("there: %s, want %s", got, tt.want)
			}
			local, _ := memory(t, 1<<20)
			if err := p.run(p.op(fabric.OpWrite, local)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestTargetIsKilledInMidCopy(t *testing.T) {
	p := startTarget(t, Options{})
	local, _ := memory(t, regionBytes)
	ops := 0
	for range 64 { // 4 GiB, about half a second
		if _, err := p.ep.Submit([]fabric.Op{p.op(fabric.OpWrite, local)}); err != nil {
			break
		}
		ops++
	}
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); !errors.Is(err, fabric.ErrConnReset) {
		t.Errorf("the connection ended by %v", err)
	}
	failed := 0
	for range ops - 1 {
		if err := p.wait(); err != nil {
			failed++
			if !errors.Is(err, fabric.ErrConnReset) {
				t.Errorf("op: %v", err)
			}
		}
	}
	if failed == 0 {
		t.Error("no op was under way when the target was killed")
	}
	if _, err := p.ep.Submit([]fabric.Op{p.op(fabric.OpWrite, local)}); err == nil {
		t.Error("an op was taken after the end")
	}
}

func TestTargetIsKilledAndItsSocketSurvives(t *testing.T) {
	p := startTarget(t, Options{})
	var heir int
	if _, err := fmt.Sscan(p.do("fork"), &heir); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(heir, syscall.SIGKILL)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); !errors.Is(err, fabric.ErrConnReset) {
		t.Errorf("the connection ended by %v", err)
	}
}

func TestTargetFreesTheRegion(t *testing.T) {
	p := startTarget(t, Options{})
	local, _ := memory(t, 4<<20)
	if err := p.run(p.op(fabric.OpWrite, local)); err != nil {
		t.Fatal(err)
	}
	p.do("free")
	for _, n := range []int{8, 4 << 20} {
		err := p.run(p.op(fabric.OpWrite, local[:n]))
		if !errors.Is(err, syscall.EFAULT) || !strings.Contains(err.Error(), "region 1") {
			t.Errorf("write of %d bytes: %v", n, err)
		}
	}
	if err := p.run(p.op(fabric.OpWrite, local[:0])); err != nil {
		t.Errorf("the endpoint afterwards: %v", err)
	}
}

func TestTargetClosesTheRegionUnderWrites(t *testing.T) {
	p := startTarget(t, Options{})
	local, _ := memory(t, 8<<20)
	for i := range local {
		local[i] = 1
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		time.Sleep(20 * time.Millisecond)
		if got := p.do("close region"); got != "done" {
			t.Errorf("close: %s", got)
		}
	}()
	writes := 0
	for {
		err := p.run(p.op(fabric.OpWrite, local[:len(local)>>(writes%12)]))
		if errors.Is(err, fabric.ErrNoKey) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		writes++
	}
	<-closed
	if got := p.do("stray"); got != "done" {
		t.Fatal(got)
	}
	t.Logf("%d writes before the region closed", writes)
}

func TestRemoteDataWakesAnotherProcess(t *testing.T) {
	p := startTarget(t, Options{})
	if _, err := fmt.Fprintln(p.in, "wait data"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // most likely it is parked by now
	local, _ := memory(t, 8)
	local[0] = 77
	op := p.op(fabric.OpWrite, local)
	op.Flags, op.Data = fabric.OpRemoteData, 4242
	if err := p.run(op); err != nil {
		t.Fatal(err)
	}
	if got := p.line(); got != "4242 77" {
		t.Fatalf("the target saw %q", got)
	}
}

func TestInitiatorIsKilledInMidCopy(t *testing.T) {
	n, err := openNode(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	lis, err := n.fab.Listen(t.Context(), n.in)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	m, addr := memory(t, regionBytes)
	mr, err := n.dom.Reg(fabric.Buffer{Addr: addr, Len: regionBytes}, allRights, regionKey(1))
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=initiator")
	cmd.Stderr = os.Stderr
	cmd.Stdin = strings.NewReader(fmt.Sprintln(lis.Addr(), hex.EncodeToString(mr.Raw())))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := lis.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ep.(fabric.Connector).Accept(ctx, req, nil); err != nil {
		t.Fatal(err)
	}
	last := sys.Bytes(addr+regionBytes-1, 1)
	for last[0] == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	clear(m)
	p := &target{node: n, tb: t}
	if err := p.ended(); !errors.Is(err, fabric.ErrConnReset) {
		t.Errorf("the connection ended by %v", err)
	}
	for i, v := range m {
		if v != 0 {
			t.Fatalf("byte %d was written after the region closed", i)
		}
	}
}
