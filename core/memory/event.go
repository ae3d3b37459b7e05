// SPDX-License-Identifier: MIT

package memory

import "mori/core/internal/sys"

// An Event is a descriptor that is readable for poll and epoll from Set to Clear. Close must not
// run concurrently with other calls.
type Event struct{ fd int }

// NewEvent creates an event that is not set.
func NewEvent() (*Event, error) {
	fd, err := sys.Event()
	if err != nil {
		return nil, err
	}
	return &Event{fd}, nil
}

// FD returns the descriptor, which the event owns.
func (e *Event) FD() int { return e.fd }

// Set makes it readable.
func (e *Event) Set() { sys.EventSet(e.fd) }

// Clear makes it not readable. Reading its 8 bytes does the same.
func (e *Event) Clear() { sys.EventClear(e.fd) }

// Close frees the descriptor.
func (e *Event) Close() error { return sys.CloseFD(e.fd) }
