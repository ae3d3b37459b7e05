// SPDX-License-Identifier: MIT

package ep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/memory"
	"mori/ep/internal/plan/plantest"
	"mori/ep/internal/view"
	"mori/shmem"
)

// A job has the op of one rank of a test.
type job struct {
	*Op
	world *shmem.World
	opts  Options
	rng   *rand.Rand // of this rank, the same in every run
}

// together makes an op on cfg.WorldSize ranks of this process and calls f on all at once. nodes has
// the node of each rank; nil: all on one.
func together(t *testing.T, cfg Config, opts Options, nodes []string, f func(j job) error) {
	t.Helper()
	if opts.Timeout == 0 {
		opts.Timeout = 20 * time.Second
	}
	errs := make([]error, cfg.WorldSize)
	var wait sync.WaitGroup
	for rank, g := range bootstrap.Local(cfg.WorldSize) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			errs[rank] = runRank(g, cfg, opts, nodes, f)
		}()
	}
	wait.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// heapSize is small, because NICs pin all of it, for each rank.
const heapSize = 32 << 20

func runRank(g bootstrap.Group, cfg Config, opts Options, nodes []string, f func(j job) error) (err error) {
	set := shmem.Config{HeapSize: heapSize, Timeout: 20 * time.Second, NodeID: "node", Host: "127.0.0.1"}
	cfg.Rank = g.Rank()
	if nodes != nil {
		set.NodeID = nodes[cfg.Rank]
	}
	w, err := shmem.Init(context.Background(), g, set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Finalize(context.Background())) }()
	o, err := New(w, cfg, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return f(job{o, w, opts, rand.New(rand.NewPCG(7, uint64(cfg.Rank)))})
}

// expertsOf returns what plantest needs to draw choices.
func expertsOf(c Config) plantest.Experts {
	return plantest.Experts{All: int32(c.Experts()), PerRank: int32(c.ExpertsPerRank)}
}

// tokens are one rank's tokens. Each rank can compute those of each other.
type tokens struct {
	n       int
	rows    []float32 // [n, hidden]
	weights []float32 // [n, topk]
	experts []int32   // [n, topk]
}

// tokensOf returns the tokens of a rank in a round. Their values are small integers, so that sums
// of a few are exact in bf16.
func tokensOf(cfg Config, rank, round int) tokens {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(round)))
	t := tokens{n: r.IntN(cfg.MaxNumInpToken + 1)}
	for range t.n * cfg.HiddenDim {
		t.rows = append(t.rows, float32(r.IntN(17)-8))
	}
	for range t.n * cfg.TopK {
		t.weights = append(t.weights, float32(r.IntN(8))/8)
		t.experts = append(t.experts, int32(r.IntN(cfg.Experts()+1)-1))
	}
	return t
}

// held has the memory whose address an op got. The op reads it after the test's last use, and the
// garbage collector does not know that.
var held struct {
	sync.Mutex
	all []any
}

func hold(s any) {
	held.Lock()
	defer held.Unlock()
	held.all = append(held.all, s)
}

// floatsAt returns the address of s, 0 if it is empty.
func floatsAt(s []float32) uint64 {
	if len(s) == 0 {
		return 0
	}
	hold(s)
	return view.Addr(s)
}

// intsAt returns the address of s.
func intsAt(s []int32) uint64 {
	hold(s)
	return view.Addr(s)
}

func (s tokens) batch(cfg Config) Batch {
	b := Batch{N: s.n, Hidden: cfg.HiddenDim, Type: Float32, Input: floatsAt(s.rows), Weights: floatsAt(s.weights)}
	if s.n > 0 {
		b.Indices = intsAt(s.experts)
	}
	return b
}

// ranksOf returns the distinct ranks that get a row of token t, in order.
func (s tokens) ranksOf(cfg Config, t int) (ranks []int) {
	for rank := range cfg.WorldSize {
		for _, e := range s.experts[t*cfg.TopK : (t+1)*cfg.TopK] {
			if e >= 0 && int(e)/cfg.ExpertsPerRank == rank {
				ranks = append(ranks, rank)
				break
			}
		}
	}
	return ranks
}

// checkReceived compares what this rank has with what all ranks sent.
func (j job) checkReceived(rows, round int) error {
	cfg, l := j.cfg, j.layout
	out := view.Of[float32](j.Base()+l.DispatchOut.Offset, rows*cfg.HiddenDim)
	indices := view.Of[int32](j.Base()+l.DispatchOutIndices.Offset, rows*cfg.TopK)
	weights := view.Of[float32](j.Base()+l.DispatchOutWeights.Offset, rows*cfg.TopK)
	positions := view.Of[int32](j.Base()+l.SrcPositions.Offset, rows)
	row := 0
	for source := range cfg.WorldSize {
		sent := tokensOf(cfg, source, round)
		for t := range sent.n {
			for _, d := range sent.ranksOf(cfg, t) {
				if d != cfg.Rank {
					continue
				}
				if row >= rows {
					return fmt.Errorf("round %d: only %d rows came", round, rows)
				}
				if s, token := cfg.DecodePosition(positions[row]); s != source || token != t {
					return fmt.Errorf("round %d: row %d is token %d of rank %d, want %d of %d", round, row, token, s, t, source)
				}
				if !prefixed(out[row*cfg.HiddenDim:][:cfg.HiddenDim], sent.rows[t*cfg.HiddenDim:]) ||
					!prefixed(weights[row*cfg.TopK:][:cfg.TopK], sent.weights[t*cfg.TopK:]) ||
					!prefixed(indices[row*cfg.TopK:][:cfg.TopK], sent.experts[t*cfg.TopK:]) {
					return fmt.Errorf("round %d: row %d differs from token %d of rank %d", round, row, t, source)
				}
				row++
			}
		}
	}
	if row != rows || int(memory.Load32(j.Received())) != rows {
		return fmt.Errorf("round %d: %d rows came, want %d", round, rows, row)
	}
	return nil
}

func prefixed[T comparable](got, want []T) bool {
	for i, v := range got {
		if v != want[i] {
			return false
		}
	}
	return true
}

// experts multiplies each received row by the number of its rank + 1.
func (j job) experts(rows int) []float32 {
	made := append([]float32(nil), view.Of[float32](j.Base()+j.layout.DispatchOut.Offset, rows*j.cfg.HiddenDim)...)
	for i := range made {
		made[i] *= float32(j.cfg.Rank + 1)
	}
	return made
}

// checkCombined compares what came back with what the experts of each rank make.
func (j job) checkCombined(sent tokens, round int, weighted, withWeights bool) error {
	cfg := j.cfg
	got := view.Of[float32](j.Base()+j.layout.CombineOut.Offset, sent.n*cfg.HiddenDim)
	back := view.Of[float32](j.Base()+j.layout.CombineOutWeights.Offset, sent.n*cfg.TopK)
	for t := range sent.n {
		ranks := sent.ranksOf(cfg, t)
		factor := float32(0)
		for _, d := range ranks {
			f := float32(1)
			if weighted {
				f = 0
				for k, e := range sent.experts[t*cfg.TopK : (t+1)*cfg.TopK] {
					if e >= 0 && int(e)/cfg.ExpertsPerRank == d {
						f += sent.weights[t*cfg.TopK+k]
					}
				}
			}
			factor += f * float32(d+1)
		}
		for h := range cfg.HiddenDim {
			if want := sent.rows[t*cfg.HiddenDim+h] * factor; math.Abs(float64(got[t*cfg.HiddenDim+h]-want)) > 1e-3 {
				return fmt.Errorf("round %d: token %d element %d is %v, want %v", round, t, h, got[t*cfg.HiddenDim+h], want)
			}
		}
		for k := range cfg.TopK {
			if want := sent.weights[t*cfg.TopK+k] * float32(len(ranks)); withWeights && back[t*cfg.TopK+k] != want {
				return fmt.Errorf("round %d: weight %d of token %d is %v, want %v", round, k, t, back[t*cfg.TopK+k], want)
			}
		}
	}
	return nil
}

func smallConfig(world int) Config {
	c := DefaultConfig()
	c.WorldSize, c.HiddenDim, c.MaxTokenTypeSize, c.MaxNumInpToken, c.ExpertsPerRank, c.TopK = world, 24, 4, 13, 3, 4
	return c
}

// journey runs rounds of dispatch and combine in every form.
func journey(rounds int) func(j job) error {
	return func(j job) error {
		for round := range rounds {
			sent := tokensOf(j.cfg, j.cfg.Rank, round)
			rows, err := j.Dispatch(sent.batch(j.cfg))
			if err != nil {
				return err
			}
			if err := j.checkReceived(rows, round); err != nil {
				return err
			}
			made := j.experts(rows)
			out := Output{Rows: rows, Hidden: j.cfg.HiddenDim, Type: Float32, Input: floatsAt(made), Weighted: round%3 == 2}
			if round%2 == 0 {
				out.HasWeights, out.Weights = true, j.Base()+j.layout.DispatchOutWeights.Offset
			}
			if round%5 == 4 {
				out.InPlace = true
				copy(view.Of[float32](j.Base()+j.layout.CombineIn.Offset, len(made)), made)
			}
			if err := j.Combine(out); err != nil {
				return err
			}
			if err := j.checkCombined(sent, round, out.Weighted, out.HasWeights); err != nil {
				return err
			}
			if got := memory.Load32(j.Received()); got != 0 {
				return fmt.Errorf("after combine %d rows are said to be here", got)
			}
		}
		return nil
	}
}

func TestDispatchAndCombine(t *testing.T) {
	for _, world := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprintf("%d ranks", world), func(t *testing.T) {
			together(t, smallConfig(world), Options{Threads: 2}, nil, journey(40))
		})
	}
}

func TestOneDispatchIsCombinedAgain(t *testing.T) {
	cfg := smallConfig(3)
	together(t, cfg, Options{}, nil, func(j job) error {
		sent := tokensOf(cfg, j.cfg.Rank, 1)
		rows, err := j.Dispatch(sent.batch(cfg))
		if err != nil {
			return err
		}
		out := Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: floatsAt(j.experts(rows))}
		for _, keep := range []bool{true, true, false} {
			j.KeepRows(keep)
			if err := errors.Join(j.Combine(out), j.checkCombined(sent, 1, false, false)); err != nil {
				return err
			}
			want := 0
			if keep {
				want = rows
			}
			if got := int(memory.Load32(j.Received())); got != want {
				return fmt.Errorf("after combine %d rows are said to be here, not %d", got, want)
			}
		}
		return nil
	})
}

func TestTwoPhases(t *testing.T) {
	cfg := smallConfig(3)
	cfg.KernelType = KernelAsyncLL
	together(t, cfg, Options{}, nil, func(j job) error {
		if _, err := j.DispatchRecv(); !errors.Is(err, ErrState) {
			return fmt.Errorf("recv before send: %v", err)
		}
		for round := range 10 {
			sent := tokensOf(cfg, j.cfg.Rank, round)
			if err := j.DispatchSend(sent.batch(cfg)); err != nil {
				return err
			}
			if err := j.DispatchSend(sent.batch(cfg)); !errors.Is(err, ErrState) {
				return fmt.Errorf("send after send: %v", err)
			}
			rows, err := j.DispatchRecv()
			if err != nil {
				return err
			}
			if err := j.checkReceived(rows, round); err != nil {
				return err
			}
			made := j.experts(rows)
			if err := j.CombineSend(Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: floatsAt(made)}); err != nil {
				return err
			}
			if err := errors.Join(j.CombineRecv(), j.checkCombined(sent, round, false, false)); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestRoutesAreReplayed(t *testing.T) {
	cfg := smallConfig(4)
	together(t, cfg, Options{}, nil, func(j job) error {
		first := tokensOf(cfg, j.cfg.Rank, 1)
		rows, err := j.Dispatch(first.batch(cfg))
		if err != nil {
			return err
		}
		slots := make([]int32, max(1, first.n*cfg.TopK))
		j.Slots(intsAt(slots))
		route := &Route{Slots: intsAt(slots), N: first.n, Rows: rows}
		// Another dispatch in between, then a combine for the first.
		if _, err := j.Dispatch(tokensOf(cfg, j.cfg.Rank, 2).batch(cfg)); err != nil {
			return err
		}
		again := first.batch(cfg)
		again.Route = route
		if rows, err = j.Dispatch(again); err != nil {
			return err
		}
		if err := j.checkReceived(rows, 1); err != nil {
			return err
		}
		made := j.experts(rows)
		out := Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: floatsAt(made), Route: route, Weighted: true}
		if err := errors.Join(j.Combine(out), j.checkCombined(first, 1, true, false)); err != nil {
			return err
		}
		other := tokensOf(cfg, j.cfg.Rank, 3)
		if _, err := j.Dispatch(other.batch(cfg)); err != nil {
			return err
		}
		if err := j.Combine(out); !errors.Is(err, ErrShape) && !(first.n == 0 && other.n == 0) {
			return fmt.Errorf("weights of another dispatch were taken: %v", err)
		}
		for range 3 { // one combine after the other
			out := Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: floatsAt(made), Route: route}
			if err := errors.Join(j.Combine(out), j.checkCombined(first, 1, false, false)); err != nil {
				return err
			}
		}
		again.N--
		if _, err := j.Dispatch(again); !errors.Is(err, ErrShape) && again.N >= 0 {
			return fmt.Errorf("a replay of another number of tokens: %v", err)
		}
		return nil
	})
}

func TestOverflowIsReported(t *testing.T) {
	cfg := smallConfig(4)
	cfg.MaxTotalRecv = 2 * cfg.MaxNumInpToken // room for 2 ranks' tokens
	together(t, cfg, Options{}, nil, func(j job) error {
		all := tokens{n: cfg.MaxNumInpToken}
		for range all.n {
			for range cfg.HiddenDim {
				all.rows = append(all.rows, 1)
			}
			for range cfg.TopK {
				all.experts, all.weights = append(all.experts, 0), append(all.weights, 1) // all to rank 0
			}
		}
		rows, err := j.Dispatch(all.batch(cfg))
		var over *CapError
		if caused := j.cfg.Rank >= 2; caused != errors.As(err, &over) || caused && over.Source != j.cfg.Rank {
			return fmt.Errorf("dispatch: %v", err)
		}
		if want := 2 * cfg.MaxNumInpToken; j.cfg.Rank == 0 && rows != want || j.cfg.Rank != 0 && rows != 0 {
			return fmt.Errorf("%d rows came", rows)
		}
		made := j.experts(rows)
		if err := j.Combine(Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: floatsAt(made)}); err != nil {
			return err
		}
		got := view.Of[float32](j.Base()+j.layout.CombineOut.Offset, all.n*cfg.HiddenDim)
		want := float32(1)
		if j.cfg.Rank >= 2 {
			want = 0
		}
		for _, v := range got {
			if v != want {
				return fmt.Errorf("combined to %v, want %v", v, want)
			}
		}
		return journey(3)(j)
	})
}

func TestARankThatDoesNotComeIsNamed(t *testing.T) {
	cfg := smallConfig(3)
	together(t, cfg, Options{Timeout: 300 * time.Millisecond}, nil, func(j job) error {
		sent := tokensOf(cfg, j.cfg.Rank, 0)
		if j.cfg.Rank == 1 {
			time.Sleep(600 * time.Millisecond)
			return nil
		}
		_, err := j.Dispatch(sent.batch(cfg))
		if !errors.Is(err, shmem.ErrTimeout) || !strings.Contains(err.Error(), "no data arrived from rank 1 (") {
			return fmt.Errorf("dispatch: %v", err)
		}
		if _, again := j.Dispatch(sent.batch(cfg)); again == nil || !strings.Contains(again.Error(), "broken") {
			return fmt.Errorf("a broken op: %v", again)
		}
		return nil
	})
}

func TestMismatchIsReported(t *testing.T) {
	cfg := smallConfig(2)
	together(t, cfg, Options{}, nil, func(j job) error {
		b := tokensOf(cfg, j.cfg.Rank, 0).batch(cfg)
		b.Hidden -= j.cfg.Rank
		if _, err := j.Dispatch(b); !errors.Is(err, ErrMismatch) {
			return fmt.Errorf("dispatch: %v", err)
		}
		return nil
	})
}

func TestBadBatchesTouchNothing(t *testing.T) {
	cfg := smallConfig(2)
	together(t, cfg, Options{}, nil, func(j job) error {
		good := tokensOf(cfg, j.cfg.Rank, 0)
		for name, spoil := range map[string]func(b *Batch){
			"too many tokens":      func(b *Batch) { b.N = cfg.MaxNumInpToken + 1 },
			"less than no token":   func(b *Batch) { b.N = -1 },
			"too wide":             func(b *Batch) { b.Hidden = cfg.HiddenDim + 1 },
			"no width":             func(b *Batch) { b.Hidden = 0 },
			"a type of no rows":    func(b *Batch) { b.Type = 4 },
			"a type that is none":  func(b *Batch) { b.Type = 77 },
			"tokens at no address": func(b *Batch) { b.N, b.Input = 1, 0 },
			"no indices":           func(b *Batch) { b.N, b.Indices = 1, 0 },
			"another route":        func(b *Batch) { b.Route = &Route{N: b.N + 1} },
		} {
			b := good.batch(cfg)
			spoil(&b)
			if _, err := j.Dispatch(b); !errors.Is(err, ErrShape) {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
		return journey(2)(j)
	})
}

func TestStandardForm(t *testing.T) {
	cfg := smallConfig(2)
	together(t, cfg, Options{}, nil, func(j job) error {
		sent := tokensOf(cfg, j.cfg.Rank, 5)
		rows, err := j.Dispatch(sent.batch(cfg))
		if err != nil {
			return err
		}
		stride := cfg.PackedRows()
		packed := make([]float32, cfg.ExpertsPerRank*stride*cfg.HiddenDim)
		counts, info := make([]int32, cfg.ExpertsPerRank), make([]int32, cfg.ExpertsPerRank*stride)
		to := Packed{Rows: floatsAt(packed), Counts: intsAt(counts), Info: intsAt(info)}
		x, indices := j.Base()+j.layout.DispatchOut.Offset, j.Base()+j.layout.DispatchOutIndices.Offset
		if err := j.Pack(to, x, indices, rows, cfg.HiddenDim, Float32); err != nil {
			return err
		}
		in := view.Of[float32](x, rows*cfg.HiddenDim)
		for e, n := range counts {
			for i := range int(n) {
				at := (e*stride + i) * cfg.HiddenDim
				if !prefixed(packed[at:at+cfg.HiddenDim], in[int(info[e*stride+i])*cfg.HiddenDim:]) {
					return fmt.Errorf("row %d of expert %d differs from row %d", i, e, info[e*stride+i])
				}
			}
		}
		// An unpacked row is the row times the weights of its choices here.
		weights := view.Of[float32](j.Base()+j.layout.DispatchOutWeights.Offset, rows*cfg.TopK)
		names := view.Of[int32](indices, rows*cfg.TopK)
		back := make([]float32, max(1, rows*cfg.HiddenDim))
		if err := j.Unpack(floatsAt(back), to.Rows, j.Base()+j.layout.DispatchOutWeights.Offset, cfg.HiddenDim, Float32); err != nil {
			return err
		}
		if err := j.CountLocal(); err != nil {
			return err
		}
		counted := append([]int32(nil), view.Of[int32](j.LocalCounts(), cfg.ExpertsPerRank)...)
		for row := range rows {
			f := float32(0)
			for k, e := range names[row*cfg.TopK : (row+1)*cfg.TopK] {
				if e >= 0 && int(e)/cfg.ExpertsPerRank == j.cfg.Rank {
					f += weights[row*cfg.TopK+k]
					counted[int(e)%cfg.ExpertsPerRank]--
				}
			}
			for h := range cfg.HiddenDim {
				if want := f * in[row*cfg.HiddenDim+h]; math.Abs(float64(back[row*cfg.HiddenDim+h]-want)) > 1e-4 {
					return fmt.Errorf("row %d unpacks to %v, want %v", row, back[row*cfg.HiddenDim+h], want)
				}
			}
		}
		for e, n := range counted {
			if n != 0 {
				return fmt.Errorf("choices of expert %d are counted wrongly by %d", e, n)
			}
		}
		return nil
	})
}
