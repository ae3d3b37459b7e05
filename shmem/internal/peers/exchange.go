// SPDX-License-Identifier: MIT

package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mori/core/decode"
)

// Gather returns the blobs of all PEs. Collective. An error breaks the World, because a group of
// ranks is unusable after a failure.
func (g *Group) Gather(ctx context.Context, blob []byte) ([][]byte, error) {
	blobs, err := g.interruptible(ctx, func(ctx context.Context) ([][]byte, error) { return g.ranks.AllGather(ctx, blob) })
	if err == nil {
		return blobs, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, ErrTimeout)
	}
	g.Fail(err)
	return nil, err
}

// interruptible runs f. If Interrupt is set, f runs on another goroutine while this one calls
// Interrupt.
func (g *Group) interruptible(ctx context.Context, f func(context.Context) ([][]byte, error)) (blobs [][]byte, err error) {
	ask := g.Interrupt
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
	tick := time.NewTicker(AskEvery)
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

// AllWell returns mine if it is not nil, else an error that names the PEs that reported one.
// Collective.
func (g *Group) AllWell(ctx context.Context, mine error) error {
	var text []byte
	if mine != nil {
		text = []byte(mine.Error())
	}
	blobs, err := g.Gather(ctx, text)
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

// NameAll formats PE numbers: "PE 3", "PEs 0-2, 5".
func NameAll(pes []int) string {
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

// Decode decodes what PE pe passed to Gather; what names it in errors. Allocations are bounded by
// the length of blob, because a PE may have another version or be broken.
func Decode(blob []byte, pe int, what string, to any) error {
	if err := decode.JSON(blob, to); err != nil {
		return fmt.Errorf("read the %s of PE %d: %w", what, pe, err)
	}
	return nil
}
