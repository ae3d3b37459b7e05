// SPDX-License-Identifier: MIT

package pingpong

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// spinFor is how long an end looks into its queue before it parks: longer than the largest
// transfer, as fi_pingpong always looks.
const spinFor = 20 * time.Millisecond

// An End is one of the two, connected.
type End struct {
	EP   fabric.Endpoint
	CQ   fabric.CQ     // of both directions, not selective
	Dest fabric.AVAddr // EPRDM: the other end

	mem  []byte // one half to send from, one to receive into
	ops  []fabric.Op
	done []fabric.Completion
	got  int // messages that are not answered yet
}

// Start readies e for messages of up to most bytes and posts the first receive, which has to happen
// before the other end pings.
func (e *End) Start(most int) (err error) {
	most = max(most, 64)
	if e.mem, err = sys.Alloc(2 * most); err != nil {
		return err
	}
	for i := range e.mem {
		e.mem[i] = byte(i)
	}
	e.ops = []fabric.Op{
		{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: sys.AddrOf(e.mem[most:]), Len: uint64(most)}},
		{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: sys.AddrOf(e.mem)}, Dest: e.Dest},
	}
	e.done = make([]fabric.Completion, 8)
	return e.submit(e.ops[:1])
}

// Stop frees the memory of Start. The endpoint is closed before.
func (e *End) Stop() error { return sys.Free(e.mem) }

// Ping sends n messages of size bytes, each after the answer to the one before.
func (e *End) Ping(ctx context.Context, size, n int) error {
	for range n {
		if err := e.send(size); err != nil {
			return err
		}
		if err := e.recv(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Pong answers n messages.
func (e *End) Pong(ctx context.Context, size, n int) error {
	for range n {
		if err := e.recv(ctx); err != nil {
			return err
		}
		if err := e.send(size); err != nil {
			return err
		}
	}
	return nil
}

func (e *End) send(size int) error {
	e.ops[1].Seg.Len = uint64(size)
	return e.submit(e.ops[1:])
}

// recv waits for the next message and posts the next receive.
func (e *End) recv(ctx context.Context) error {
	for e.got == 0 {
		if err := e.read(ctx); err != nil {
			return err
		}
	}
	e.got--
	return e.submit(e.ops[:1])
}

func (e *End) submit(ops []fabric.Op) error {
	n, err := e.EP.Submit(ops)
	if n == len(ops) {
		return nil
	}
	return fmt.Errorf("submit %v: %w", ops[0].Kind, err)
}

// read takes completions, looking for a while and then parked.
func (e *End) read(ctx context.Context) error {
	n, err := e.spin()
	if errors.Is(err, fabric.ErrAgain) {
		n, err = e.CQ.Wait(ctx, e.done)
	}
	if errors.Is(err, fabric.ErrAvail) {
		var entry fabric.ErrEntry
		if err := e.CQ.ReadErr(&entry); err != nil {
			return err
		}
		return &entry
	}
	if err != nil {
		return err
	}
	for _, c := range e.done[:n] {
		if c.Kind == fabric.OpRecv {
			e.got++
		}
	}
	return nil
}

func (e *End) spin() (int, error) {
	var end time.Time
	for i := 1; ; i++ {
		n, err := e.CQ.Read(e.done)
		if n > 0 || err != fabric.ErrAgain {
			return n, err
		}
		if i%64 != 0 {
			continue
		}
		switch now := time.Now(); {
		case end.IsZero():
			end = now.Add(spinFor)
		case now.After(end):
			return 0, err
		}
	}
}
