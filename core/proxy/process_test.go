// SPDX-License-Identifier: MIT

package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/abi"
	kernels "mori/native/proxy"
)

// peerEnv names the provider over which this test program is a peer, and nothing else.
const peerEnv = "MORI_PROXY_TEST_PEER"

// A hello is what a peer's process prints: its address and regions.
type hello struct {
	Name    fabric.Addr
	Regions []Shown
}

const processBytes = 1 << 16

// peerProcess shows a region until somebody kills it, or its input ends.
func peerProcess() int {
	err := func() error {
		name := os.Getenv(peerEnv)
		port, err := Open(context.Background(), providers[name](), hintsFor(name))
		if err != nil {
			return err
		}
		b, err := sys.Alloc(processBytes)
		if err != nil {
			return err
		}
		r, err := port.Register(fabric.Buffer{Addr: sys.AddrOf(b), Len: processBytes})
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(hello{port.Name(), []Shown{{Raw: r.Raw, Len: processBytes, Host: true}}}); err != nil {
			return err
		}
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (e *end) process(name string) (*exec.Cmd, Peer) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	e.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), peerEnv+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	e.must(err)
	out, err := cmd.StdoutPipe()
	e.must(err)
	e.must(cmd.Start())
	e.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var told hello
	e.must(json.NewDecoder(out).Decode(&told))
	peer, err := e.port.Reach(told.Name, told.Regions)
	e.must(err)
	return cmd, peer
}

// TestPeerIsKilled: a peer's process dies while kernels put to it. Their waits end with an error,
// and another PE of the same queue is served.
func TestPeerIsKilled(t *testing.T) {
	for _, name := range []string{"tcp", "shm", "verbs"} {
		t.Run(name, func(t *testing.T) {
			need(t, name)
			from := providers[name]()
			near, far := newEnd(t, from, processBytes), newEnd(t, from, processBytes)
			pattern(near.data, 7)
			cmd, dying := near.process(name)
			q, err := New(Config{Port: near.port, Local: near.local, Peers: []Peer{dying, near.reach(far)}, Slots: 64})
			near.must(err)
			t.Cleanup(func() { near.must(errors.Join(near.port.Close(), q.Close())) })
			at := sys.AddrOf(near.data)
			near.ran("put", kernels.Put(grid, q.Device(), 0, false, at, 64, processBytes/64)) // it is there
			done := make(chan abi.ProxyPutOutcome)
			go func() {
				for {
					if o := kernels.Put(grid, q.Device(), 0, true, at, 64, processBytes/64); o.Failed != 0 {
						done <- o
						return
					}
				}
			}()
			for before := q.Stats().Commands; q.Stats().Commands < before+200; {
				time.Sleep(100 * time.Microsecond)
			}
			near.must(cmd.Process.Kill())
			_ = cmd.Wait()
			select {
			case o := <-done:
				if o.Status == 0 || o.Status > 0x10000 || q.Err(0) == nil {
					t.Errorf("%+v, %v; want the PE's status", o, q.Err(0))
				}
			case <-time.After(deadline):
				t.Fatal("kernels still wait for a peer that is dead")
			}
			near.ran("put to the other PE", kernels.Put(grid, q.Device(), 1, false, at, 64, processBytes/64))
			near.same("at the other PE", far.data, near.data)
		})
	}
}
