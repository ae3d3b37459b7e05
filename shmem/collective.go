// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// gather returns every PE's blob. Collective. A group that fails once is of no more use, and neither is the World then.
func (w *World) gather(ctx context.Context, blob []byte) ([][]byte, error) {
	blobs, err := w.askedMeanwhile(ctx, func(ctx context.Context) ([][]byte, error) { return w.group.AllGather(ctx, blob) })
	if err == nil {
		return blobs, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, ErrTimeout)
	}
	w.fail(err)
	return nil, err
}

// askedMeanwhile runs f on another goroutine if this one has somebody to ask whether to go on.
func (w *World) askedMeanwhile(ctx context.Context, f func(context.Context) ([][]byte, error)) (blobs [][]byte, err error) {
	ask := w.cfg.Interrupt
	if ask == nil {
		return f(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		blobs, err = f(ctx)
	}()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			if why := context.Cause(ctx); err != nil && why != nil {
				err = errors.Join(why, err)
			}
			return blobs, err
		case <-tick.C:
			if why := ask(); why != nil {
				cancel(why)
			}
		}
	}
}

// allWell returns mine, or an error that names the PEs that have one. Collective.
func (w *World) allWell(ctx context.Context, mine error) error {
	var text []byte
	if mine != nil {
		text = []byte(mine.Error())
	}
	blobs, err := w.gather(ctx, text)
	if mine != nil || err != nil {
		return errors.Join(mine, err)
	}
	var bad []string
	for pe, blob := range blobs {
		if len(blob) > 0 {
			bad = append(bad, fmt.Sprintf("PE %d: %s", pe, blob))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s: %w", strings.Join(bad, "; "), ErrElsewhere)
	}
	return nil
}

// A call is what a PE calls that all PEs have to call alike.
type call struct {
	Kind  string
	Seq   uint64 // how many there were before
	Size  uint64 // bytes
	Align uint64
	At    uint64 // offset that is given out or taken back; of no block: nowhere
}

// nowhere is no offset.
const nowhere = ^uint64(0)

func (c call) String() string {
	at := fmt.Sprintf(", offset %d", c.At)
	if c.At == nowhere {
		at = ", nowhere"
	}
	if c.Kind == callFree {
		return fmt.Sprintf("%s (call %d%s)", c.Kind, c.Seq, at)
	}
	return fmt.Sprintf("%s of %d bytes aligned to %d (call %d%s)", c.Kind, c.Size, c.Align, c.Seq, at)
}

// The kinds of calls.
const (
	callMalloc     = "malloc"
	callMallocHost = "malloc of host memory"
	callCalloc     = "calloc"
	callFree       = "free"
)

// agree compares what the PEs call, and is an error on all of them if they differ. Collective; w.mu is held.
func (w *World) agree(ctx context.Context, c call) error {
	if err := w.broken(); err != nil {
		return err
	}
	c.Seq = w.calls
	w.calls++
	text, _ := json.Marshal(c) // plain fields
	blobs, err := w.gather(ctx, text)
	if err != nil {
		return err
	}
	var kinds []call
	pes := map[call][]int{}
	for pe, blob := range blobs {
		var their call
		if err := json.Unmarshal(blob, &their); err != nil {
			return fmt.Errorf("read the call of PE %d: %w", pe, err)
		}
		if pes[their] == nil {
			kinds = append(kinds, their)
		}
		pes[their] = append(pes[their], pe)
	}
	if len(kinds) == 1 {
		return nil
	}
	var what []string
	for _, k := range kinds {
		what = append(what, fmt.Sprintf("%s %s", nameAll(pes[k]), k))
	}
	return fmt.Errorf("%s: %w", strings.Join(what, "; "), ErrMismatch)
}

// nameAll names PEs: "PE 3", "PEs 0-2, 5".
func nameAll(pes []int) string {
	var parts []string
	for i := 0; i < len(pes); i++ {
		from := i
		for i+1 < len(pes) && pes[i+1] == pes[i]+1 {
			i++
		}
		switch {
		case i == from:
			parts = append(parts, fmt.Sprint(pes[i]))
		case i == from+1:
			parts = append(parts, fmt.Sprint(pes[from]), fmt.Sprint(pes[i]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", pes[from], pes[i]))
		}
	}
	if len(pes) == 1 {
		return "PE " + parts[0]
	}
	return "PEs " + strings.Join(parts, ", ")
}
