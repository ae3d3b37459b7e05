// SPDX-License-Identifier: MIT

package descriptor

import (
	"mori/io/internal/identity"
)

// MaxKey is the maximum length of an engine's key and of its node id, in bytes.
const MaxKey = 256

// An Engine identifies an engine and has the address of its control plane. It is a value and may be
// copied.
type Engine struct {
	Key      string // unique name, chosen by the user
	NodeID   string // MORI_NODE_ID, else the kernel's boot id, else the hostname
	Hostname string
	Host     string // as configured
	Port     int    // bound control-plane port; 0 before a backend that listens was created
	PID      int

	// Incarnation is random per engine, so that a restarted engine is not mistaken for its
	// predecessor. 0 = unknown.
	Incarnation uint64

	// PublicKey belongs to the engine's Ed25519 key pair. With the private key, an engine proves to
	// its peers that it is this one. All zero = none.
	PublicKey identity.PublicKey
}

// ID returns the incarnation that d describes. Without an incarnation or a public key, it equals no
// peer's ID.
func (d Engine) ID() identity.ID {
	return identity.ID{Key: d.Key, Incarnation: d.Incarnation, Public: d.PublicKey}
}

// Equal compares the six public fields.
func (d Engine) Equal(o Engine) bool {
	d.Incarnation, o.Incarnation = 0, 0
	d.PublicKey, o.PublicKey = identity.PublicKey{}, identity.PublicKey{}
	return d == o
}

// handleLen is the fixed length of GPU IPC and fabric handles.
const handleLen = 64

// A Memory names a registered region and carries the right to access it: every
// holder of its packed form can read and write the region. It is a value and may be copied.
type Memory struct {
	EngineKey   string
	ID          uint32 // per engine, from 0, never reused
	DeviceID    int    // GPU ordinal, -1 for host memory
	DeviceBusID string
	Data        uint64 // address in the registering process
	Size        uint64 // bytes
	Loc         Location
	IPCHandle   [handleLen]byte
	NUMANode    int // of a host buffer's first page, -1 unknown
	IPCOffset   uint64

	FabricHandle    [handleLen]byte
	VPodID          int
	VPodPPodID      string
	FabricOffset    uint64
	FabricAllocSize uint64

	Secret      [16]byte // the region key's random half; all zero = none
	Incarnation uint64   // of the registering engine; 0 = unknown
}

// NewMemory returns an empty descriptor.
func NewMemory() Memory { return Memory{DeviceID: -1, NUMANode: -1, VPodID: -1} }

// Equal compares the public fields, without handles and secret.
func (d Memory) Equal(o Memory) bool {
	return d.EngineKey == o.EngineKey && d.ID == o.ID && d.DeviceID == o.DeviceID &&
		d.DeviceBusID == o.DeviceBusID &&
		d.Data == o.Data && d.Size == o.Size && d.Loc == o.Loc && d.NUMANode == o.NUMANode &&
		d.IPCOffset == o.IPCOffset
}

// Key returns the right to access the region.
func (d Memory) Key() RegionKey { return RegionKey{ID: d.ID, Secret: d.Secret} }

// A RegionKey is the right to access a region of an engine.
type RegionKey struct {
	ID     uint32
	Secret [16]byte
}

// A Location is the kind of memory that a region is in.
type Location int

// The locations.
const (
	LocUnknown Location = iota
	LocCPU
	LocGPU
)
