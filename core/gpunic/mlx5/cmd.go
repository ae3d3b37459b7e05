// SPDX-License-Identifier: MIT

package mlx5

import "encoding/hex"

// A Cmd sends commands to one NIC's firmware: through mlx5dv of libmlx5, or to an emulated NIC. Its
// methods are safe for concurrent use. After Close all of them return an error.
type Cmd interface {
	// Do executes the command in and fills out with the reply. An error means that there was no reply.
	// If the NIC refused the command, the reply's status says so.
	Do(in, out []byte) error

	// Umem registers n bytes of this process at addr, both multiples of the page size. It returns the
	// number that commands use for this memory.
	Umem(addr, n uint64) (id uint32, err error)
	FreeUmem(id uint32) error

	// UAR allocates a page of doorbells. It returns the address of the register that a queue rings,
	// and the page's number for commands.
	UAR() (register uint64, page uint32, err error)
	FreeUAR(page uint32) error

	// Info describes the NIC. Only the ports' state changes.
	Info() (Info, error)

	Close() error
}

// An Info is what the system reports of a NIC.
type Info struct {
	Name     string
	EQN      uint32 // the event queue for completion queues
	Emulated bool
	Ports    []Port // the first one is port 1
}

// A Port connects a NIC to a network.
type Port struct {
	Active   bool
	Ethernet bool // RoCE, addressed by GID and MAC; else InfiniBand, addressed by LID
	LID      uint16
	MTU      int // in bytes
	GID      GID
	GIDIndex int // of GID in the port's table
	MAC      [6]byte
}

// A GID is the address of a port.
type GID [16]byte

func (g GID) String() string { return hex.EncodeToString(g[:]) }
