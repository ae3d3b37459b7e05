// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
)

// What goroutines of a case submit with: no method of these ends the case.

// send submits op, from any goroutine, and waits for its success.
func (n *node) send(op fabric.Op) error {
	for {
		k, err := n.try(op)
		if k == 1 {
			break
		}
		if fabric.ErrnoOf(err) != fabric.ErrAgain || n.ctx.Err() != nil {
			return err
		}
	}
	e, err := next(n.ctx, n.cq)
	if err == nil && (e.Err != 0 || e.Ctx != op.Ctx) {
		return &e
	}
	return err
}

// pipeline submits count ops, as many at a time as the endpoint takes, and waits for the success of all.
func (n *node) pipeline(count int, op func(i int) fabric.Op) error {
	for i, flying := 0, 0; i < count || flying > 0; {
		if i < count {
			k, err := n.try(op(i))
			if i, flying = i+k, flying+k; k == 1 {
				continue
			}
			if !errors.Is(err, fabric.ErrAgain) {
				return fmt.Errorf("submit op %d of %d: %w", i, count, err)
			}
		}
		if flying == 0 {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		e, err := next(n.ctx, n.cq)
		if err == nil && e.Err != 0 {
			err = &e
		}
		if err != nil {
			return fmt.Errorf("op %d of %d or one before: %w", i, count, err)
		}
		flying--
	}
	return nil
}
