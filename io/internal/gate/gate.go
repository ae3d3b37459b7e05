// SPDX-License-Identifier: MIT

package gate

import (
	"errors"

	"mori/core/device"
)

// An After names a point in the work of a GPU. The zero value names none.
type After struct {
	event  *device.Event
	stream *device.Stream
}

// Event waits for the latest record of e before Set.Arm. The caller may record e again or destroy
// it after that.
func Event(e *device.Event) After { return After{event: e} }

// Stream waits for the work queued on s before Set.Arm.
func Stream(s *device.Stream) After { return After{stream: s} }

func (a After) device() *device.Device {
	if a.stream != nil {
		return a.stream.Device()
	}
	return a.event.Device()
}

// A Waiter waits for a gate.
type Waiter interface {
	// Waits reports whether the waiter is still interested. It does not block.
	Waits() bool

	// Open is called once: when the gate's event has happened, when the GPU reported an error, or
	// after Waits returned false.
	Open(err error)
}

// A Gate is a point in the work of a GPU, as an event of its own. The caller may destroy its event
// before the gate is polled.
type Gate struct {
	event  *device.Event
	stream *device.Stream // waits for the caller's event; nil if that was never needed
	waiter Waiter
}

func (g *Gate) close() error {
	err := g.event.Close()
	if g.stream != nil {
		err = errors.Join(g.stream.Close(), err)
	}
	return err
}

// record makes the event of g happen when a is reached.
func (g *Gate) record(a After) error {
	if a.stream != nil {
		return g.event.Record(a.stream)
	}
	if g.stream == nil {
		s, err := a.event.Device().NewStream(device.Normal)
		if err != nil {
			return err
		}
		g.stream = s
	}
	if err := g.stream.After(a.event); err != nil {
		return err
	}
	return g.event.Record(g.stream)
}
