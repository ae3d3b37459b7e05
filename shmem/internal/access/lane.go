// SPDX-License-Identifier: MIT

package access

import (
	"errors"
	"runtime"
	"time"

	"mori/core/device"
)

// A lane is a stream of its own, with pinned words of its own for what a kernel answers.
type lane struct {
	stream *device.Stream
	words  *device.HostMemory
	args   device.Args
}

// laneBytes are the words of a lane: the result of an atomic.
const laneBytes = 64

// take returns a free lane, or a new one.
func (g *GPU) take() (*lane, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.lanes); n > 0 {
		l := g.lanes[n-1]
		g.lanes = g.lanes[:n-1]
		return l, nil
	}
	s, err := g.Device.NewStream(device.Urgent)
	if err != nil {
		return nil, err
	}
	words, err := g.Device.AllocHost(laneBytes)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	l := &lane{stream: s, words: words}
	g.all = append(g.all, l)
	return l, nil
}

// Copies are looked after without a pause for as long as they take on a slow link, as a nap lasts
// 55 µs and more, and a copy of 64 MiB over NVLink 180. A CPU that copied the bytes itself would
// not be free for any longer.
const (
	spinAtLeast = 50 * time.Microsecond
	spinAtMost  = 2 * time.Millisecond
	slowLink    = 100 // bytes in a nanosecond
)

// await waits for a stream that was given copies of n bytes.
func (g *GPU) await(s *device.Stream, n uint64) error {
	most := min(spinAtLeast+time.Duration(n/slowLink), spinAtMost)
	for begin := time.Now(); time.Since(begin) < most; runtime.Gosched() {
		if done, err := s.Done(); done || err != nil {
			return err
		}
	}
	return g.Wait(s)
}

// use gives work of n bytes to a lane and waits for it, then calls done, if it is not nil. A lane
// whose work does not end is not used again.
func (g *GPU) use(n uint64, work func(l *lane) error, done func(l *lane)) error {
	l, err := g.take()
	if err != nil {
		return err
	}
	err = work(l)
	if late := g.await(l.stream, n); late != nil {
		return errors.Join(err, late)
	}
	if err == nil && done != nil {
		done(l)
	}
	g.mu.Lock()
	g.lanes = append(g.lanes, l)
	g.mu.Unlock()
	return err
}
