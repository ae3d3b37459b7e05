// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"mori/core/fabric"
)

// A messenger is a DataPath that passes messages to the peer's messenger in this process.
type messenger struct {
	testPath
	other   *messenger
	inside  atomic.Int32
	most    atomic.Int32
	room    chan struct{}
	placedC chan uint64

	held sync.Mutex // serializes into
	keep func(op *fabric.Op) bool
}

func (m *messenger) Messages() bool { return true }

func (m *messenger) Send(k Ticket, op *fabric.Op) {
	if n := m.inside.Add(1); n > m.most.Load() {
		m.most.Store(n)
	}
	defer m.inside.Add(-1)
	if m.keep != nil && m.keep(op) {
		hold(&m.testPath, k, op)
		return
	}
	m.other.into(op)
	m.ep.Finish(k, nil)
}

// into receives a message and ignores its bytes.
func (m *messenger) into(op *fabric.Op) {
	m.held.Lock()
	defer m.held.Unlock()
	f := m.ep.Feed()
	if recv, ok := f.Take(); ok {
		f.Filled(&recv, 0, op.Data, fabric.OpRemoteData)
	} else if f.Hold(0) {
		f.Deliver(nil, op.Data, fabric.OpRemoteData, PathToken|op.Data)
	}
}

func (m *messenger) Changed() {
	select {
	case m.room <- struct{}{}:
	default:
	}
}

func (m *messenger) Placed(token uint64) { m.placedC <- token }

func messengers(t *testing.T) (a, b *rig, ma, mb *messenger) {
	t.Helper()
	attach := func(m **messenger) func(Port, any) (DataPath, error) {
		return func(ep Port, _ any) (DataPath, error) {
			*m = &messenger{room: make(chan struct{}, 1), placedC: make(chan uint64, 4096)}
			(*m).testPath = testPath{ep: ep, open: map[Ticket]bool{}, changed: make(chan struct{}, 1000)}
			return *m, nil
		}
	}
	a, b = newRig(t, attach(&ma)), newRig(t, attach(&mb))
	join(a, b)
	ma.other, mb.other = mb, ma
	return a, b, ma, mb
}

// TestADirectTakesMessagesOneByOneInOrder submits from several goroutines.
func TestADirectTakesMessagesOneByOneInOrder(t *testing.T) {
	a, b, ma, _ := messengers(t)
	const senders, each = 4, 50
	recvs := make([]fabric.Op, senders*each)
	for i := range recvs {
		recvs[i].Kind = fabric.OpRecv
	}
	_, err := b.ep.Submit(recvs)
	b.must(err)
	var wg sync.WaitGroup
	for g := range uint64(senders) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range uint64(each) {
				flags := fabric.OpRemoteData
				if i%10 == 9 {
					flags |= fabric.OpFence
				}
				if _, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Flags: flags, Data: g<<32 | i}}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	var next [senders]uint64
	for range senders * each {
		c, err := b.next()
		b.must(err)
		if g := c.Data >> 32; next[g] != c.Data&0xffffffff {
			t.Fatalf("message %d of sender %d, want %d", c.Data&0xffffffff, g, next[g])
		} else {
			next[g]++
		}
		_, err = a.next()
		a.must(err)
	}
	if n := ma.most.Load(); n != 1 {
		t.Errorf("%d calls of Send at once", n)
	}
}

func TestADirectHearsOfReceives(t *testing.T) {
	a, b, _, mb := messengers(t)
	for i := range uint64(3) {
		_, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Data: i}})
		a.must(err)
		_, err = a.next()
		a.must(err)
	}
	for i := range uint64(3) {
		_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
		b.must(err)
		if c, err := b.next(); err != nil || c.Data != i {
			t.Fatalf("message %+v, %v", c, err)
		}
		if token := <-mb.placedC; token != PathToken|i {
			t.Errorf("token %#x of message %d", token, i)
		}
		<-mb.room
	}
}

func TestMessagesThatADirectHoldsEndWithTheConnection(t *testing.T) {
	a, b, ma, _ := messengers(t)
	ma.keep = func(op *fabric.Op) bool { return op.Data == 1 }
	_, err := a.ep.Submit([]fabric.Op{
		{Kind: fabric.OpSend, Data: 1, Ctx: 1},
		{Kind: fabric.OpSend, Data: 2, Ctx: 2, Flags: fabric.OpFence},
	})
	a.must(err)
	a.must(a.ep.Shutdown())
	causes := map[uint64]error{}
	for range 2 {
		c, err := a.next()
		causes[c.Ctx] = err
	}
	if !errors.Is(causes[1], fabric.ErrConnReset) || !errors.Is(causes[2], fabric.ErrConnAborted) {
		t.Errorf("ended by %v", fmt.Sprint(causes))
	}
	b.event(fabric.EventShutdown)
}
