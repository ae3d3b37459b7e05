// SPDX-License-Identifier: MIT

package mlx5

import "encoding/hex"

// A Cmd is the way to one NIC's firmware: mlx5dv of libmlx5 for a real one, or an emulated NIC. Its
// methods may be called from many goroutines at once. After Close all of them return an error.
type Cmd interface {
	// Do has the NIC carry out the command in and fills out with its answer. An error says that no
	// answer came; that the NIC refused is in the answer's status.
	Do(in, out []byte) error

	// Umem makes n bytes of this process at addr, both multiples of the page size, known to the NIC
	// under a number that commands carry.
	Umem(addr, n uint64) (id uint32, err error)
	FreeUmem(id uint32) error

	// UAR makes a page of doorbells and returns the address of the one that a queue rings, and the
	// page's number, which commands carry.
	UAR() (register uint64, page uint32, err error)
	FreeUAR(page uint32) error

	// Info describes the NIC. It does not change but for the ports' state.
	Info() (Info, error)

	Close() error
}

// An Info is what the system knows of a NIC.
type Info struct {
	Name     string
	EQN      uint32 // the event queue that completion queues name
	Emulated bool
	Ports    []Port // the first one is port 1
}

// A Port connects a NIC with a network.
type Port struct {
	Active   bool
	Ethernet bool // RoCE: GID and MAC lead to it; else InfiniBand, and LID does
	LID      uint16
	MTU      int // in bytes
	GID      GID
	GIDIndex int // of GID in the port's table
	MAC      [6]byte
}

// A GID is the address of a port.
type GID [16]byte

func (g GID) String() string { return hex.EncodeToString(g[:]) }
