// SPDX-License-Identifier: MIT

package host

import (
	"errors"
	"fmt"
	"time"

	"mori/ep/internal/call"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/shmem"
)

// Options of a Side.
type Options struct {
	Timeout   time.Duration // of each wait for other ranks, 0: unbounded
	Threads   int           // that move and sum rows; at least 1
	Interrupt func() error  // called while a recv waits; an error ends the wait; may be nil
}

// A Side is one rank's op on host memory. Not for use by several goroutines at once.
type Side struct {
	*buffers
	state    *call.State
	pending  pending
	staging  *staging
	dispatch *dispatcher
	combine  *combiner
	packer   *packer
}

// Open makes the op. Collective.
func Open(w *shmem.World, cfg plan.Config, l plan.Layout, state *call.State, opts Options) (*Side, error) {
	b := &buffers{world: w, cfg: cfg, layout: l}
	if err := b.allocate(); err != nil {
		return nil, err
	}
	s := &Side{buffers: b, state: state, staging: &staging{world: w}, pending: pending{interrupt: opts.Interrupt}}
	f := &flags{buffers: b, timeout: opts.Timeout, state: state}
	threads := workers(opts.Threads)
	s.dispatch = &dispatcher{buffers: b, flags: f, state: state, staging: s.staging, threads: threads,
		matrix: plan.NewCountMatrix(cfg), plan: plan.New(cfg)}
	s.combine = &combiner{buffers: b, flags: f, state: state, last: s.dispatch, threads: threads,
		puller: puller{buffers: b, staging: s.staging}, replayed: plan.New(cfg)}
	s.packer = &packer{buffers: b, combine: s.combine, threads: threads}
	return s, nil
}

// Close waits for a pending call and frees the buffers. Collective.
func (s *Side) Close() error {
	s.pending.settle()
	s.state.Close()
	return errors.Join(s.staging.drop(), s.free())
}

// Settle waits for a pending call whose recv will not come.
func (s *Side) Settle() error {
	s.pending.settle()
	return nil
}

// Check returns why the op is broken, or nil.
func (s *Side) Check() error { return s.state.Broken() }

// usable returns why a call cannot begin, or nil.
func (s *Side) usable() error {
	if err := s.state.Usable(); err != nil {
		return err
	}
	if s.pending.done != nil {
		return fmt.Errorf("the recv of the previous send is missing: %w", plan.ErrState)
	}
	return nil
}

// Dispatch sends each token once to every rank with an expert that it chose, and returns how many
// rows this rank received.
func (s *Side) Dispatch(b call.Batch) (rows int, err error) {
	rest, err := s.beginDispatch(b)
	if err == nil {
		err = rest()
	}
	return s.rows, err
}

// DispatchSend begins a dispatch, which continues in a goroutine.
func (s *Side) DispatchSend(b call.Batch) error {
	rest, err := s.beginDispatch(b)
	if err == nil {
		s.pending.start(rest)
	}
	return err
}

// DispatchRecv waits for the dispatch of DispatchSend.
func (s *Side) DispatchRecv() (rows int, err error) {
	err = s.pending.await("dispatch_recv")
	return s.rows, err
}

func (s *Side) beginDispatch(b call.Batch) (rest func() error, err error) {
	if err := s.usable(); err != nil {
		return nil, fmt.Errorf("dispatch %d tokens: %w", b.N, err)
	}
	return s.dispatch.begin(b)
}

// Combine sums the rows of each token on the token's rank.
func (s *Side) Combine(out call.Output) error {
	rest, err := s.beginCombine(out)
	if err != nil {
		return err
	}
	return rest()
}

// CombineSend begins a combine, which continues in a goroutine.
func (s *Side) CombineSend(out call.Output) error {
	rest, err := s.beginCombine(out)
	if err == nil {
		s.pending.start(rest)
	}
	return err
}

// CombineRecv waits for the combine of CombineSend.
func (s *Side) CombineRecv() error { return s.pending.await("combine_recv") }

func (s *Side) beginCombine(out call.Output) (rest func() error, err error) {
	if err := s.usable(); err != nil {
		return nil, fmt.Errorf("combine %d rows: %w", out.Rows, err)
	}
	return s.combine.begin(out)
}

// KeepRows makes combine leave the number of received rows as it is.
func (s *Side) KeepRows(on bool) { s.combine.keep = on }

// Tokens returns how many tokens this rank's last dispatch had.
func (s *Side) Tokens() int { return s.dispatch.plan.Tokens() }

// Slots fills the routing map of the last dispatch, int32 [N, TopK] at address slots.
func (s *Side) Slots(slots uint64) error {
	p := s.dispatch.plan
	p.Map(view.Of[int32](slots, p.Tokens()*s.cfg.TopK))
	return nil
}

// Pack copies the rows at x, [rows, hidden] of type t, into the standard-MoE form.
func (s *Side) Pack(to call.Packed, x, indices uint64, rows, hidden int, t plan.DType) error {
	return s.packer.pack(to, x, indices, rows, hidden, t)
}

// Unpack sums the rows of Packed.Rows for each row that Pack had.
func (s *Side) Unpack(dst, packed, weights uint64, hidden int, t plan.DType) error {
	if dst == s.at(s.layout.CombineIn) {
		if err := s.usable(); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
	return s.packer.unpack(dst, packed, weights, hidden, t)
}

// CountLocal fills LocalCounts.
func (s *Side) CountLocal() error {
	return s.cfg.CountReceived(s.LocalCounts(), s.at(s.layout.DispatchOutIndices), s.rows)
}
