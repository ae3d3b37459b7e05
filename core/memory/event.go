// SPDX-License-Identifier: MIT

package memory

import "mori/core/internal/sys"

// An Event is a descriptor that poll and epoll find readable from Set to Clear. Close must not
// overlap with the others.
type Event struct{ fd int }

// NewEvent makes an event that is not set.
func NewEvent() (*Event, error) {
	fd, err := sys.Event()
	if err != nil {
		return nil, err
	}
	return &Event{fd}, nil
}

// FD is the descriptor, the event's own.
func (e *Event) FD() int { return e.fd }

// Set makes it readable.
func (e *Event) Set() { sys.EventSet(e.fd) }

// Clear makes it not readable. So does who reads its 8 bytes.
func (e *Event) Clear() { sys.EventClear(e.fd) }

// Close frees the descriptor.
func (e *Event) Close() error { return sys.CloseFD(e.fd) }
