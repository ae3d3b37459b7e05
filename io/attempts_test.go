// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/config"
	"mori/core/fabric"
	"mori/io/internal/peer"
	"mori/native/verbs/verbstest"
)

// quick makes an engine pause only briefly between replays.
func quick(e *Engine) { e.shared.Pace = peer.Pace{First: time.Microsecond, Most: time.Millisecond} }

// A breaking domain ends each connection at its first submission.
type breaking struct {
	fabric.Domain
	peer *Engine
	ops  *atomic.Int64
}

func (d *breaking) Endpoint(in *fabric.Info) (fabric.Endpoint, error) {
	ep, err := d.Domain.Endpoint(in)
	if err != nil {
		return nil, err
	}
	return &breakingEndpoint{ep, ep.(fabric.Connector), d}, nil
}

type breakingEndpoint struct {
	fabric.Endpoint
	fabric.Connector
	domain *breaking
}

// Submit makes the peer close all its connections, and then submits.
func (ep *breakingEndpoint) Submit(ops []fabric.Op) (int, error) {
	if len(ops) > 0 {
		ep.domain.ops.Add(int64(len(ops)))
	}
	var wg sync.WaitGroup
	for _, tr := range ep.domain.peer.backends.Transports() {
		for _, c := range tr.Conns() {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c.Close()
			}()
		}
	}
	wg.Wait()
	return ep.Endpoint.Submit(ops)
}

// If the connection of an op breaks each time, the op is replayed peer.MaxReplays times and then
// fails, over each transport. A transfer over verbs also tries tcp.
func TestAttemptsOfATransferAreBoundedOverEachTransport(t *testing.T) {
	for _, c := range []struct{ transports, path string }{{"shm", "shm"}, {"tcp", "tcp"}, {"verbs,tcp", "verbs"}} {
		t.Run(c.path, func(t *testing.T) {
			if c.path == "verbs" {
				verbstest.Need(t)
			}
			setEnv(t, map[string]string{config.FabricProvider: c.transports})
			a, b := newSide(t, "a", 1<<16, BackendRDMA, nil), newSide(t, "b", 1<<16, BackendRDMA, nil)
			quick(a.Engine)
			var ops atomic.Int64
			for _, tr := range a.backends.Transports() {
				tr.Domain = &breaking{tr.Domain, b.Engine, &ops}
			}
			s := meet(t, a, b).WithDeadline(0)
			runsOn(t, s, c.path)
			for i, move := range []func(lo, ro, sz []uint64, uid uint64) *Status{s.Write, s.Read} {
				ops.Store(0)
				st := move([]uint64{0}, []uint64{0}, []uint64{1 << 16}, uint64(i))
				if code := st.Wait(deadline(t)); code != CodeErrRDMAOp || !strings.Contains(st.Message(), "stopped after 20 replays") {
					t.Errorf("%v %q", code, st.Message())
				}
				if n := ops.Load(); n < 2 || n > peer.MaxReplays+1 {
					t.Errorf("the op was submitted %d times, want at most %d", n, peer.MaxReplays+1)
				}
			}
		})
	}
}

// A transfer without a deadline gives up after a bounded number of attempts to find a path.
func TestAttemptsToFindAPathAreBounded(t *testing.T) {
	w := newWired(t, 64, nil, quick)
	w.shm.down.Store(true)
	w.tcp.down.Store(true)
	var ops atomic.Int64
	broken := func(*fabric.Op) error {
		ops.Add(1)
		return errors.Join(errCut, fabric.ErrConnReset)
	}
	w.shm.breakWith(broken)
	w.tcp.breakWith(broken)
	st := w.s.WithDeadline(0).Write([]uint64{0}, []uint64{0}, []uint64{64}, 1)
	if code := st.Wait(deadline(t)); !code.Failed() || !strings.Contains(st.Message(), "stopped after 100 attempts to open a path") {
		t.Errorf("%v %q", code, st.Message())
	}
	if n := ops.Load(); n > 1 {
		t.Errorf("%d ops were tried", n)
	}
}
