// SPDX-License-Identifier: MIT

package proxy

import (
	"fmt"
	"math/bits"
	"time"

	"mori/core/fabric"
)

// A Local is memory of this side that commands may name.
type Local struct {
	fabric.Buffer
	Desc   fabric.MRDesc
	Device uint64 // where kernels see it; 0: at Addr
}

// at is where kernels see it.
func (l *Local) at() uint64 {
	if l.Device != 0 {
		return l.Device
	}
	return l.Addr
}

// A Remote is a region of a peer.
type Remote struct {
	Key, Base, Len uint64
	Host           bool // it is host memory, on which every provider has atomics
}

// A Peer is a PE and its regions, the first of which short commands name.
type Peer struct {
	Dest    fabric.AVAddr
	Regions []Remote
	Desk    Remote // where it is asked for atomics on regions that are not host memory; zero: it is not
}

// Config is what a queue is made from. Zero fields have the defaults that are named.
type Config struct {
	Port   *Port
	Peers  []Peer  // by PE; up to 65536
	Local  []Local // the first is that of short commands
	Memory Memory  // where the queue lies; default OnHost()

	// For atomics on the memory of GPUs: the desk of this side, its number among the peers' own Peers, and what changes a word of the first local
	// memory for a peer. Atomics is called by several goroutines, and may take as long as it takes.
	Desk    *Desk
	Self    int
	Atomics func(Change) (old uint64, err error)

	Slots int           // of the ring, a power of two from 2 to 2^20; default 1024
	Bytes uint64        // of puts and gets under way, at most, unless one alone is longer; default 64 MiB
	Wait  time.Duration // the limit of a kernel's wait; default 30 s
	Spin  time.Duration // how long to look for the next command before a nap; default 50 µs
	Nap   time.Duration // the longest nap; default 1 ms
}

const (
	defaultSlots, mostSlots = 1024, 1 << 20
	defaultBytes            = 64 << 20
	defaultWait             = 30 * time.Second
	defaultSpin             = 50 * time.Microsecond
	defaultNap              = time.Millisecond
	mostPeers               = 1 << peBits
	mostRegions             = 1 << 16
)

// complete fills in defaults and refuses what does not fit.
func (c *Config) complete() error {
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.Bytes == 0 {
		c.Bytes = defaultBytes
	}
	for d, def := range map[*time.Duration]time.Duration{&c.Wait: defaultWait, &c.Spin: defaultSpin, &c.Nap: defaultNap} {
		if *d == 0 {
			*d = def
		}
		if *d < 0 {
			return fmt.Errorf("a time of %v: %w", *d, ErrConfig)
		}
	}
	if c.Memory == nil {
		c.Memory = OnHost()
	}
	switch {
	case c.Port == nil:
		return fmt.Errorf("no port: %w", ErrConfig)
	case c.Slots < 2 || c.Slots > mostSlots || bits.OnesCount(uint(c.Slots)) != 1:
		return fmt.Errorf("%d slots, want a power of two from 2 to %d: %w", c.Slots, mostSlots, ErrConfig)
	case len(c.Peers) == 0 || len(c.Peers) > mostPeers:
		return fmt.Errorf("%d peers, want 1 to %d: %w", len(c.Peers), mostPeers, ErrConfig)
	case len(c.Local) == 0:
		return fmt.Errorf("no local memory: %w", ErrConfig)
	}
	if c.Desk != nil && (c.Atomics == nil || c.Self < 0 || c.Self >= c.Desk.pes || len(c.Peers) > c.Desk.pes) {
		return fmt.Errorf("a desk of %d PEs, for %d, as PE %d: %w", c.Desk.pes, len(c.Peers), c.Self, ErrConfig)
	}
	for pe, p := range c.Peers {
		if len(p.Regions) > mostRegions {
			return fmt.Errorf("%d regions of PE %d, want up to %d: %w", len(p.Regions), pe, mostRegions, ErrConfig)
		}
	}
	return nil
}
