// SPDX-License-Identifier: MIT

package access

import (
	"errors"
	"runtime"
	"time"

	"mori/core/device"
)

// A lane is a stream with pinned words for the results of kernels.
type lane struct {
	stream *device.Stream
	words  *device.HostMemory
	args   device.Args
}

// laneBytes is the size of a lane's words: the result of an atomic.
const laneBytes = 64

// take returns a free lane, or creates one.
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

// The waiter polls without pause for the time that the copy takes on a slow link. A nap lasts at
// least 55 µs, and a copy of 64 MiB over NVLink 180. A CPU that copied the bytes itself would be
// busy for as long.
const (
	spinAtLeast = 50 * time.Microsecond
	spinAtMost  = 2 * time.Millisecond
	slowLink    = 100 // bytes per nanosecond
)

// await waits for a stream on which copies of n bytes are queued.
func (g *GPU) await(s *device.Stream, n uint64) error {
	most := min(spinAtLeast+time.Duration(n/slowLink), spinAtMost)
	for begin := time.Now(); time.Since(begin) < most; runtime.Gosched() {
		if done, err := s.Done(); done || err != nil {
			return err
		}
	}
	return g.Wait(s)
}

// use runs work of n bytes on a lane and waits for it, then calls done unless it is nil. A lane
// whose work does not end is not reused.
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
