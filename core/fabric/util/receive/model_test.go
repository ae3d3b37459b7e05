// SPDX-License-Identifier: MIT

package receive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A recvModel is what a Queue does, written down as lists.
type recvModel struct {
	posted []uint64 // contexts
	early  []uint64 // data of messages
	want   []string // entries, in order
}

func (m *recvModel) post(ctx uint64) {
	if len(m.early) == 0 {
		m.posted = append(m.posted, ctx)
		return
	}
	m.done(ctx, m.early[0])
	m.early = m.early[1:]
}

func (m *recvModel) arrive(data uint64) {
	if len(m.posted) == 0 {
		m.early = append(m.early, data)
		return
	}
	m.done(m.posted[0], data)
	m.posted = m.posted[1:]
}

func (m *recvModel) done(ctx, data uint64) { m.want = append(m.want, fmt.Sprint(ctx, " got ", data)) }

func (m *recvModel) cancel(ctx uint64) {
	m.posted = slices.DeleteFunc(m.posted, func(c uint64) bool {
		if c == ctx {
			m.want = append(m.want, fmt.Sprint(ctx, " canceled"))
		}
		return c == ctx
	})
}

// TestRecvAgainstModel does random things to a queue and to the model. Contexts repeat.
func TestRecvAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r, f, cq := newRecv(t, 20, 1<<20, false)
		var m recvModel
		var got []string
		buf := make([]byte, 8)
		for step := range uint64(300) {
			ctx := rng.Uint64N(10)
			switch rng.IntN(5) {
			case 0, 1:
				if r.Post(recvOp(ctx, buf)) == nil {
					m.post(ctx)
				}
			case 2, 3:
				if arrive(f, "message"[:rng.IntN(8)], step, fabric.OpRemoteData) {
					m.arrive(step)
				}
			case 4:
				r.Cancel(ctx)
				m.cancel(ctx)
			}
			got = append(got, readAll(cq)...)
		}
		if !slices.Equal(got, m.want) {
			t.Fatalf("seed %d:\ngot  %q\nwant %q", seed, got, m.want)
		}
		if r.posted.len() != len(m.posted) || r.early.len() != len(m.early) || len(m.early) == 0 && f.held != 0 {
			t.Fatalf("seed %d: %d posted and %d early, %d held; want %d and %d", seed, r.posted.len(), r.early.len(), f.held, len(m.posted), len(m.early))
		}
	}
}

// readAll reads everything that is in the queue, in words.
func readAll(cq *util.CQ) (out []string) {
	for {
		var dst [4]fabric.Completion
		var e fabric.ErrEntry
		n, err := cq.Read(dst[:])
		for _, c := range dst[:n] {
			out = append(out, fmt.Sprint(c.Ctx, " got ", c.Data))
		}
		if err == fabric.ErrAvail && cq.ReadErr(&e) == nil {
			out = append(out, fmt.Sprint(e.Ctx, " canceled"))
		} else if err != nil {
			return out
		}
	}
}
