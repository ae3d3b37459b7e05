// SPDX-License-Identifier: MIT

package device

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// live records open objects, with the stack that opened them if a test asks for it.
var live struct {
	sync.Mutex
	open  map[*handle]string
	stack bool
}

// A handle can be closed once.
type handle struct {
	dev    *Device
	what   string // "64 bytes of memory"
	closed atomic.Bool
	free   func() error
}

// init opens h.
func (h *handle) init(d *Device, what string, free func() error) {
	h.dev, h.what, h.free = d, what, free
	live.Lock()
	defer live.Unlock()
	if live.open == nil {
		live.open = make(map[*handle]string)
	}
	text := fmt.Sprintf("%s on %s", what, d)
	if live.stack {
		text += "\n" + string(debug.Stack())
	}
	live.open[h] = text
}

// Close releases the object. Nothing may use it any more. Closing again returns nil.
func (h *handle) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	live.Lock()
	delete(live.open, h)
	live.Unlock()
	if err := h.free(); err != nil {
		return fmt.Errorf("close %s: %w", h.what, err)
	}
	return nil
}

// check returns an error if the object is closed.
func (h *handle) check() error {
	if h.closed.Load() {
		return fmt.Errorf("%s on %s: %w", h.what, h.dev, ErrClosed)
	}
	return nil
}

// Live lists the open objects.
func Live() []string {
	live.Lock()
	defer live.Unlock()
	all := make([]string, 0, len(live.open))
	for _, text := range live.open {
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}
