// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"mori/shmem/internal/peers"
)

// A call describes a collective call, which must be the same on all PEs.
type call struct {
	Kind  string
	Seq   uint64 // number of earlier calls
	Size  uint64 // bytes
	Align uint64
	At    uint64 // offset that is allocated or freed; nowhere if there is no block
}

// nowhere is not an offset.
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

// agree compares the calls of all PEs and returns an error on all of them if they differ.
// Collective; a.heap.mu is held.
func (a *Allocator) agree(ctx context.Context, c call) error {
	if err := a.pes.Check(); err != nil {
		return err
	}
	c.Seq = a.calls
	a.calls++
	text, _ := json.Marshal(c) // plain fields
	blobs, err := a.pes.Gather(ctx, text)
	if err != nil {
		return err
	}
	var kinds []call
	pes := map[call][]int{}
	for pe, blob := range blobs {
		var their call
		if err := peers.Decode(blob, pe, "call", &their); err != nil {
			return err
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
		what = append(what, fmt.Sprintf("%s %s", peers.NameAll(pes[k]), k))
	}
	return fmt.Errorf("%s: %w", strings.Join(what, "; "), peers.ErrMismatch)
}
