// SPDX-License-Identifier: MIT

package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/shm/internal/ring"
)

// sizeOf returns the length of message i of the sending process. Small messages use the ring, and
// some large ones are pulled.
func sizeOf(i int) uint64 {
	if i%50 == 49 {
		return regionBytes / 2
	}
	return uint64(i*611) % (2 * ring.InlineMessage)
}

// senderProcess connects to the address on its first input line and sends messages continuously
// until it is killed.
func senderProcess() {
	var addr string
	_, err := fmt.Scan(&addr)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	n, err2 := openNode(ctx, Options{})
	if err = errors.Join(err, err2); err != nil {
		panic(err)
	}
	if _, err := n.ep.(fabric.Connector).Connect(ctx, fabric.Addr(addr), nil); err != nil {
		panic(err)
	}
	m, err := sys.Alloc(regionBytes)
	if err != nil {
		panic(err)
	}
	for i := range m {
		m[i] = 1
	}
	done := make([]fabric.Completion, 64)
	for i := 0; ctx.Err() == nil; {
		op := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: fabric.Seg{Addr: sys.AddrOf(m), Len: sizeOf(i)}, Data: uint64(i)}
		if _, err := n.ep.Submit([]fabric.Op{op}); err == nil {
			i++
		} else {
			_, _ = n.cq.Wait(ctx, done)
		}
	}
}

// connectNodes makes two connected nodes in this process.
func connectNodes(t *testing.T, opts Options) (a, b *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	open := func() *node {
		n, err := openNode(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.close(); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	a, b = open(), open()
	lis, err := b.fab.Listen(ctx, b.in)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := lis.Accept(ctx)
		if err == nil {
			err = b.ep.(fabric.Connector).Accept(ctx, req, nil)
		}
		accepted <- err
	}()
	_, err = a.ep.(fabric.Connector).Connect(ctx, lis.Addr(), nil)
	if err = errors.Join(err, <-accepted); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// acceptFrom starts a process in a role, which connects to the node.
func acceptFrom(t *testing.T, n *node, role string) *exec.Cmd {
	t.Helper()
	lis, err := n.fab.Listen(t.Context(), n.in)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	cmd.Stdin = strings.NewReader(fmt.Sprintln(lis.Addr()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := lis.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ep.(fabric.Connector).Accept(ctx, req, nil); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Whole messages arrive in order up to some point. After that, every receive ends with an error,
// and no more bytes are written.
func TestSenderIsKilledInMidMessage(t *testing.T) {
	for _, after := range []int{0, 20, 49, 100, 333} {
		t.Run(fmt.Sprintf("after %d messages", after), func(t *testing.T) {
			n, err := openNode(t.Context(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			m, addr := memory(t, regionBytes)
			cmd := acceptFrom(t, n, "sender")
			p := &target{node: n, tb: t}
			const posted = 64
			for i := range posted {
				op := fabric.Op{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: addr, Len: regionBytes}, Ctx: uint64(i)}
				if _, err := n.ep.Submit([]fabric.Op{op}); err != nil {
					t.Fatal(err)
				}
			}
			got, killed := 0, false
			for left := posted; left > 0; left-- {
				if got >= after && !killed {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					killed = true
				}
				c := p.next()
				switch {
				case c.Err == 0 && (c.Data != uint64(got) || c.Len != sizeOf(got)):
					t.Fatalf("message %d: %+v", got, c)
				case c.Err == 0:
					got++
					if !killed {
						if _, err := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: addr, Len: regionBytes}}}); err != nil {
							t.Fatal(err)
						}
						left++
					}
				case !errors.Is(c.Err, fabric.ErrConnReset):
					t.Errorf("receive: %v", &c)
				}
			}
			if err := p.ended(); !errors.Is(err, fabric.ErrConnReset) {
				t.Errorf("the connection ended by %v", err)
			}
			clear(m)
			time.Sleep(20 * time.Millisecond)
			for i, v := range m {
				if v != 0 {
					t.Fatalf("byte %d was written after the end", i)
				}
			}
			t.Logf("%d messages", got)
		})
	}
}

// next waits for the next entry.
func (p *target) next() fabric.ErrEntry {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tb.Context(), 30*time.Second)
	defer cancel()
	var done [1]fabric.Completion
	_, err := p.cq.Wait(ctx, done[:])
	if errors.Is(err, fabric.ErrAvail) {
		var e fabric.ErrEntry
		if err := p.cq.ReadErr(&e); err != nil {
			p.tb.Fatal(err)
		}
		return e
	}
	if err != nil {
		p.tb.Fatal(err)
	}
	return fabric.ErrEntry{Completion: done[0]}
}

// receiverProcess connects to the address on its first input line and receives until it is killed.
func receiverProcess() {
	var addr string
	_, err := fmt.Scan(&addr)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	n, err2 := openNode(ctx, Options{})
	m, err3 := sys.Alloc(regionBytes)
	if err = errors.Join(err, err2, err3); err != nil {
		panic(err)
	}
	recv := []fabric.Op{{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: sys.AddrOf(m), Len: regionBytes}}}
	for range 16 {
		if _, err := n.ep.Submit(recv); err != nil {
			panic(err)
		}
	}
	if _, err := n.ep.(fabric.Connector).Connect(ctx, fabric.Addr(addr), nil); err != nil {
		panic(err)
	}
	done := make([]fabric.Completion, 1)
	for ctx.Err() == nil {
		if k, _ := n.cq.Wait(ctx, done); k == 1 {
			_, _ = n.ep.Submit(recv)
		}
	}
}

func TestReceiverIsKilledInMidMessage(t *testing.T) {
	n, err := openNode(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	cmd := acceptFrom(t, n, "receiver")
	p := &target{node: n, tb: t}
	local, _ := memory(t, regionBytes)
	sent, killed, failed := 0, false, 0
	for ended := 0; ended < sent || !killed; {
		op := fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: sys.AddrOf(local), Len: sizeOf(sent)}, Ctx: uint64(sent)}
		if _, err := n.ep.Submit([]fabric.Op{op}); err == nil {
			sent++
			continue
		}
		e := p.next()
		if ended++; e.Err != 0 {
			failed++
			if !errors.Is(e.Err, fabric.ErrConnReset) {
				t.Errorf("message: %v", &e)
			}
		}
		if ended == 300 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed = true
		}
	}
	if err := p.ended(); !errors.Is(err, fabric.ErrConnReset) {
		t.Errorf("the connection ended by %v", err)
	}
	if failed == 0 {
		t.Error("no message was under way when the receiver was killed")
	}
}
