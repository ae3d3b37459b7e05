// SPDX-License-Identifier: MIT

package mem

import (
	"errors"
	"fmt"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
)

// TestCarrierThatNeverConnects ends the ops that wait in it, whichever way it goes.
func TestCarrierThatNeverConnects(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(e *endpoint)
		want fabric.Errno
		then error // of a further Submit
	}{
		{"abort", func(e *endpoint) { e.Abort(fmt.Errorf("reach b: %w", fabric.ErrTimeout)) }, fabric.ErrTimeout, fabric.ErrNotConn},
		{"close", func(e *endpoint) { _ = e.Close() }, fabric.ErrCanceled, fabric.ErrClosed},
		{"abort and close", func(e *endpoint) { e.Abort(fabric.ErrPerm); _ = e.Close() }, fabric.ErrPerm, fabric.ErrClosed},
		{"close and abort", func(e *endpoint) { _ = e.Close(); e.Abort(fabric.ErrPerm) }, fabric.ErrCanceled, fabric.ErrClosed},
	} {
		_, d := openDomain(t, New(Options{}))
		e, err := d.(*domain).connector()
		if err != nil {
			t.Fatal(err)
		}
		var shared util.Queues
		cq, err := d.CQ(2 * limits.TxSize)
		if err := errors.Join(err, shared.BindCQ(cq, fabric.DirRecv, false)); err != nil {
			t.Fatal(err)
		}
		recv := receive.NewQueue(&shared, 1)
		e.Carry(recv, func() fabric.AVAddr { return 5 })
		send := []fabric.Op{{Kind: fabric.OpSend}}
		if _, err := e.Submit(send); !errors.Is(err, fabric.ErrOpBadState) {
			t.Errorf("%s: submit before enable: %v", c.name, err)
		}
		if err := errors.Join(e.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false), e.Enable()); err != nil {
			t.Fatal(err)
		}
		for i := range limits.TxSize {
			send[0].Ctx = uint64(i)
			if _, err := e.Submit(send); err != nil {
				t.Fatalf("%s: op %d: %v", c.name, i, err)
			}
		}
		if _, err := e.Submit(send); !errors.Is(err, fabric.ErrAgain) {
			t.Errorf("%s: more than may wait: %v", c.name, err)
		}
		c.end(e)
		if _, err := e.Submit(send); !errors.Is(err, c.then) {
			t.Errorf("%s: submit: %v", c.name, err)
		}
		for i := range limits.TxSize {
			var entry fabric.ErrEntry
			if err := cq.ReadErr(&entry); err != nil || entry.Ctx != uint64(i) || entry.Err != c.want {
				t.Fatalf("%s: op %d: %+v, %v", c.name, i, entry, err)
			}
		}
		if err := recv.Post(&fabric.Op{Kind: fabric.OpRecv}); err != nil {
			t.Errorf("%s: the queue of receives ended with its carrier: %v", c.name, err)
		}
		_ = e.Close()
	}
}
