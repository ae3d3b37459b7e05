// SPDX-License-Identifier: MIT

package proxy

import (
	"fmt"
	"math/bits"
	"time"

	"mori/core/fabric"
	"mori/native/abi"
)

// A Local is memory of this side that commands may use.
type Local struct {
	fabric.Buffer
	Desc   fabric.MRDesc
	Device uint64 // its address for kernels; 0: Addr
}

// at returns its address for kernels.
func (l *Local) at() uint64 {
	if l.Device != 0 {
		return l.Device
	}
	return l.Addr
}

// A Remote is a region of a peer.
type Remote struct {
	Key, Base, Len uint64
	Host           bool // host memory, on which every provider supports atomics
}

// A Peer is a PE with its regions. Short commands use the first region.
type Peer struct {
	Dest    fabric.AVAddr
	Regions []Remote
	Server  Remote // its atomic server, for regions in GPU memory; zero without one
}

// Config describes a queue. Zero fields have the defaults that their comments give.
type Config struct {
	Port   *Port
	Peers  []Peer  // by PE; up to 65536
	Local  []Local // the first serves short commands
	Memory Memory  // where the queue lies; default OnHost()

	// For atomics on GPU memory: this side's atomic server, its number in the peers' Peers, and the
	// function that changes a word of the first local memory for a peer. Several goroutines call
	// Atomics; it may block.
	AtomicServer *AtomicServer
	Self         int
	Atomics      func(Change) (old uint64, err error)

	Slots int           // of the ring, a power of two from 2 to 2^20; default 1024
	Bytes uint64        // limit of pending puts and gets in bytes, unless a single one is longer; default 64 MiB
	Wait  time.Duration // time limit of a kernel's wait; default 30 s
	Spin  time.Duration // how long to poll for the next command before sleeping; default 50 µs
	Nap   time.Duration // the longest sleep; default 1 ms
}

const (
	defaultSlots, mostSlots = 1024, 1 << 20
	defaultBytes            = 64 << 20
	defaultWait             = 30 * time.Second
	defaultSpin             = 50 * time.Microsecond
	defaultNap              = time.Millisecond
	mostPeers               = 1 << abi.ProxyPEBits
	mostRegions             = 1 << 16
)

// complete fills in defaults and rejects invalid values.
func (c *Config) complete() error {
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.Bytes == 0 {
		c.Bytes = defaultBytes
	}
	for d, def := range map[*time.Duration]time.Duration{
		&c.Wait: defaultWait, &c.Spin: defaultSpin, &c.Nap: defaultNap,
	} {
		if *d == 0 {
			*d = def
		}
		if *d < 0 {
			return fmt.Errorf("invalid duration %v: %w", *d, ErrConfig)
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
	if s := c.AtomicServer; s != nil && (c.Atomics == nil || c.Self < 0 || c.Self >= s.pes || len(c.Peers) > s.pes) {
		return fmt.Errorf("an atomic server for %d PEs, with %d peers, as PE %d: %w", s.pes, len(c.Peers), c.Self, ErrConfig)
	}
	for pe, p := range c.Peers {
		if len(p.Regions) > mostRegions {
			return fmt.Errorf("%d regions of PE %d, want up to %d: %w", len(p.Regions), pe, mostRegions, ErrConfig)
		}
	}
	return nil
}
