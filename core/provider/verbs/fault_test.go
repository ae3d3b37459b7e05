// SPDX-License-Identifier: MIT

package verbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// A device that fails in the middle of transfers ends them, with the device's name and what
// happened, and the connection, and nothing is left. That it holds still before shows that none had
// ended; where it does so to the end, its queue pairs are taken away under it.
func TestDeviceFailsUnderOps(t *testing.T) {
	for _, c := range []struct {
		what  string
		fail  func(testing.TB, int) (undo func())
		words string
	}{{"port down", verbstest.PortDown, "port 1 went down"}, {"removed", verbstest.Remove, "failed or was removed"}} {
		for _, stuck := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stuck=%v", c.what, stuck), func(t *testing.T) {
				verbstest.NeedEmulated(t)
				verbstest.Need(t, 2)
				leavesNothing(t)
				w := way{Settings: Settings{Rails: 2, QPs: 2}, releaseWait: 200 * time.Millisecond}
				deaf := w
				deaf.NoEvents = true // the peer hears of it from this side
				a, b := newEndsOf(t, w, deaf)
				local, remote := a.memory(t, 1<<20), b.memory(t, 1<<20)
				key := a.imports(t, remote.mr)
				ok(t, a.do(local.write(1<<20, key)))
				release := verbstest.Hold(t, 0)
				also := verbstest.Hold(t, 1)
				const n = 12
				for range n / 3 {
					ok(t, a.submit(local.write(1<<20, key), local.read(1<<20, key), local.write(4096, key)))
				}
				dp := a.path(t)
				undo := c.fail(t, 0)
				if !stuck {
					<-dp.ops.Stopped // until then the other device's work goes on
					release()
					also()
				}
				for range n {
					_, err := a.next()
					fails(t, err, fabric.ErrConnReset, "emu0", c.words)
				}
				fails(t, a.ends(t), fabric.ErrConnReset, "emu0", c.words)
				b.ends(t)
				if said := a.log.String(); !strings.Contains(said, c.words) || !strings.Contains(said, "emu0") {
					t.Errorf("the log does not name emu0 that %s:\n%s", c.words, said)
				}
				ok(t, a.ep.Close())
				ok(t, b.ep.Close())
				undo()
			})
		}
	}
}

// Ops that ended before a failure are successes, the one that fails says why, and those behind it
// that they were not done.
func TestStatusOfOneOp(t *testing.T) {
	for name, c := range map[string]struct {
		status verbs.Status
		want   fabric.Errno
	}{
		"retries exceeded":    {verbs.StatusRetryExceeded, fabric.ErrConnReset},
		"remote access":       {verbs.StatusRemAccess, fabric.ErrConnReset},
		"remote request":      {verbs.StatusRemInvReq, fabric.ErrConnReset},
		"local protection":    {verbs.StatusLocProt, fabric.ErrConnReset},
		"remote operation":    {verbs.StatusRemOp, fabric.ErrConnReset},
		"receivers not ready": {verbs.StatusRNRExceeded, fabric.ErrConnReset},
	} {
		t.Run(name, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			a, b := newEnds(t, way{})
			local, remote := a.memory(t, 1<<16), b.memory(t, 1<<16)
			key := a.imports(t, remote.mr)
			ok(t, a.do(local.write(1<<16, key)))
			rail := a.path(t).rails.all[0].String()
			release := verbstest.Hold(t, 0)
			verbstest.FailNext(t, verbs.OpWrite, c.status)
			read, write := local.read(4096, key), local.write(8192, key)
			read.Ctx, write.Ctx = 1, 2
			behind := local.read(4096, key)
			ok(t, a.submit(read, read, write, behind, write, behind))
			release()
			var failed []error
			for i := range 6 {
				done, err := a.next()
				switch {
				case done.Ctx == 1:
					ok(t, err)
				case i == 2:
					fails(t, err, c.want, "queue pair", rail, c.status.String())
				default:
					fails(t, err, fabric.ErrConnReset, "not executed", c.status.String())
				}
				if err != nil {
					failed = append(failed, err)
				}
			}
			if len(failed) != 4 {
				t.Errorf("%d ops failed, want 4: %v", len(failed), failed)
			}
			fails(t, a.ends(t), fabric.ErrConnReset, c.status.String())
		})
	}
}

// What the library refuses while a connection is made ends it in words that the program sees;
// nothing is left, and the next is well.
func TestConnectFails(t *testing.T) {
	for _, call := range []string{"ibv_create_qp", "ibv_modify_qp", "ibv_create_cq", "ibv_create_comp_channel", "ibv_reg_mr", "ibv_query_port"} {
		t.Run(call, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			leavesNothing(t)
			a, b := newEnd(t, way{}), newEnd(t, way{})
			local, remote := a.memory(t, 4096), b.memory(t, 4096)
			key := a.imports(t, remote.mr)
			before := verbstest.Objects(t)
			verbstest.Fail(t, call+"=12")
			said := []error{connect(a, b)}
			if said[0] == nil {
				if err := a.do(local.write(4096, key)); err == nil {
					t.Fatal("an op succeeded")
				}
				said = []error{a.ends(t), b.ends(t)} // the one that failed, and its peer
			}
			for _, err := range said {
				for _, words := range []string{"RDMA", "emu0", "cannot allocate memory"} {
					if !strings.Contains(err.Error(), words) {
						t.Errorf("%q does not say %q", err, words)
					}
				}
			}
			ok(t, a.ep.Close())
			ok(t, b.ep.Close())
			if n := verbstest.Objects(t); n != before {
				t.Errorf("%d objects of the library are left", n-before)
			}
			verbstest.Fail(t, "")
			ok(t, a.renew())
			ok(t, b.renew())
			ok(t, connect(a, b))
			ok(t, a.do(local.write(4096, key)))
		})
	}
}

// renew makes another endpoint.
func (e *end) renew() (err error) {
	if e.ep, err = e.dom.Endpoint(nil); err != nil {
		return err
	}
	e.closed = append(e.closed, e.ep.Close)
	return errors.Join(e.ep.BindCQ(e.cq, fabric.DirTransmit|fabric.DirRecv, false), e.ep.BindEQ(e.eq), e.ep.Enable())
}

// GetInfo says what to do where there is no device to use.
func TestNoDeviceToUse(t *testing.T) {
	for name, c := range map[string]struct {
		set     Settings
		disturb func(testing.TB)
		words   []string
	}{
		"no active port":   {Settings{}, func(tb testing.TB) { verbstest.PortDown(tb, 0); verbstest.PortDown(tb, 1) }, []string{"emu0", "emu1", "no active port", "cable"}},
		"no such device":   {Settings{Devices: []string{"mlx9_9"}}, nil, []string{"mlx9_9", "of emu0, emu1", "no such device"}},
		"no such port":     {Settings{Devices: []string{"emu0:2"}}, nil, []string{"emu0:2", "port 2 of 1"}},
		"no such GID":      {Settings{GIDIndex: 77}, nil, []string{"emu0", "77"}},
		"no device at all": {Settings{}, func(tb testing.TB) { verbstest.Count(tb, 0) }, []string{"no RDMA device"}},
		"may not be opened": {Settings{}, func(tb testing.TB) { verbstest.Fail(tb, "ibv_open_device=13") },
			[]string{"emu0", "permission denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			leavesNothing(t)
			w := way{Settings: c.set}
			if c.disturb != nil {
				c.disturb(t)
			}
			_, err := New(w.options(&logBuffer{})).GetInfo(context.Background(), "", "", nil)
			fails(t, err, fabric.ErrNoData, c.words...)
		})
	}
}

// A port that went down, or whose device was removed, is left out by the connections that are made
// then, if there is another; and the port is used again when it is back.
func TestAnotherDevice(t *testing.T) {
	for what, away := range map[string]func(testing.TB, int) (back func()){"port down": verbstest.PortDown, "removed": verbstest.Remove} {
		t.Run(what, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			verbstest.Need(t, 2)
			a, b := newEnds(t, way{})
			local, remote := a.memory(t, 4096), b.memory(t, 4096)
			key := a.imports(t, remote.mr)
			first := a.path(t).rails.all[0].nic.name
			back := away(t, 0)
			a.ends(t)
			b.ends(t)
			again := func(want bool) {
				t.Helper()
				ok(t, errors.Join(a.ep.Close(), b.ep.Close(), a.renew(), b.renew(), connect(a, b)))
				for _, from := range []*memory{local, a.memory(t, 4096), unregistered(t, 4096)} { // registered before, since, and not
					ok(t, a.do(from.write(4096, key)))
					ok(t, a.do(from.write(4096, a.imports(t, b.memory(t, 4096).mr))))
				}
				dp := a.path(t)
				if got := dp.rails.all[0].nic.name; (got == first) != want || strings.Contains(a.reason(), "TCP") {
					t.Errorf("the connection is on %s: %s", got, a.reason())
				}
			}
			again(false)
			back()
			again(what == "port down") // a device is opened once
		})
	}
}

// An address that goes away under ops ends them with its name, at once. The next connection has
// another address of the device, or where one was asked for that is gone, another device, until it
// is back.
func TestAddressIsGone(t *testing.T) {
	for _, asked := range []int{-1, 1} {
		t.Run(fmt.Sprintf("asked for %d", asked), func(t *testing.T) {
			verbstest.NeedEmulated(t)
			verbstest.Need(t, 2)
			a, b := newEnds(t, way{Settings: Settings{GIDIndex: asked}})
			local, remote := a.memory(t, 1<<16), b.memory(t, 1<<16)
			key := a.imports(t, remote.mr)
			ok(t, a.do(local.write(1<<16, key)))
			release := verbstest.Hold(t, 0)
			const n = 6
			for range n / 2 {
				ok(t, a.submit(local.write(1<<16, key), local.read(1<<16, key)))
			}
			stopped := a.path(t).ops.Stopped
			back := verbstest.DropGID(t, 0, 1)
			<-stopped
			release()
			for range n {
				_, err := a.next()
				fails(t, err, fabric.ErrConnReset) // in the words of whichever end was first to find it
			}
			cause := errors.Join(a.ends(t), b.ends(t))
			fails(t, cause, fabric.ErrConnReset, "emu0", "lost its address 198.18.0.10", "index 1")
			if said := a.log.String() + b.log.String(); !strings.Contains(said, "an address was removed") {
				t.Errorf("the log does not name it:\n%s", said)
			}
			on := func(want string) {
				t.Helper()
				ok(t, errors.Join(a.ep.Close(), b.ep.Close(), a.renew(), b.renew(), connect(a, b)))
				ok(t, a.do(local.write(4096, key)))
				r := a.path(t).rails.all[0]
				if got := fmt.Sprintf("%s, %d", r.nic.name, r.gid.Index); got != want {
					t.Errorf("the connection is on %s, want %s", got, want)
				}
			}
			if asked < 0 {
				on("emu0, 2")
			} else {
				on("emu1, 1")
			}
			back()
			on("emu0, 1")
		})
	}
}

// A queue pair that goes into error under load, of either end, ends the connection and no op
// without a word: what succeeded is there. The next connection goes by the NIC again.
func TestQueuePairFailsUnderLoad(t *testing.T) {
	a, b := newEnds(t, way{Settings: Settings{QPs: 2}})
	const size, count = 64 << 10, 40
	local, remote := a.memory(t, size*count), b.memory(t, size*count)
	key := a.imports(t, remote.mr)
	for round, victim := range []*end{a, b, a} {
		local.fill(round)
		clear(remote.bytes)
		ok(t, a.do(local.write(8, key)))
		ok(t, same(remote.bytes[:8], local.bytes[:8]))
		op := func(i uint64) fabric.Op {
			return fabric.Op{Kind: fabric.OpWrite, Ctx: i, Seg: local.seg(i*size, size), RSeg: fabric.RSeg{Addr: i * size, Len: size, Key: key}}
		}
		for i := range uint64(count / 2) {
			ok(t, a.submit(op(i)))
		}
		ok(t, victim.path(t).rails.all[0].pairs[1].qp.Fail())
		ended := count / 2
		for i := uint64(count / 2); i < count && a.submit(op(i)) == nil; i++ {
			ended++
		}
		for range ended {
			c, err := a.next()
			if err != nil {
				fails(t, err, fabric.ErrConnReset)
				continue
			}
			at := c.Ctx * size
			ok(t, same(remote.bytes[at:][:size], local.bytes[at:][:size]))
		}
		fails(t, errors.Join(a.ends(t), b.ends(t)), fabric.ErrConnReset)
		ok(t, errors.Join(a.ep.Close(), b.ep.Close(), a.renew(), b.renew(), connect(a, b)))
	}
	ok(t, a.do(local.write(size*count, key)))
	ok(t, same(remote.bytes, local.bytes))
	a.path(t)
	if name, reason := a.ep.(fabric.Prober).Path(); name != "rdma" || strings.Contains(reason, "TCP") {
		t.Errorf("path %s: %s", name, reason)
	}
}
