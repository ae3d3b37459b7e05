// SPDX-License-Identifier: MIT

package verbs

// A Transport is the transport protocol of a device.
type Transport int8

// Transports. RoCE is TransportIB; EFA and other vendor-specific ones are TransportUnspecified.
const (
	TransportUnknown Transport = iota - 1
	TransportIB
	TransportIWARP
	TransportUSNIC
	TransportUSNICUDP
	TransportUnspecified
)

func (t Transport) String() string {
	if t == TransportUnknown {
		return "unknown"
	}
	return text([]string{"IB", "iWARP", "usNIC", "usNIC UDP", "unspecified"}, int(t), "transport")
}

// A NodeType is the role of a device in its fabric.
type NodeType int8

// Types of nodes.
const (
	NodeUnknown NodeType = iota - 1
	_
	NodeCA
	NodeSwitch
	NodeRouter
	NodeRNIC
	NodeUSNIC
	NodeUSNICUDP
	NodeUnspecified
)

func (n NodeType) String() string {
	if n == NodeUnknown {
		return "unknown"
	}
	return text([]string{"", "CA", "switch", "router", "RNIC", "usNIC", "usNIC UDP", "unspecified"}, int(n), "node type")
}

// A Device is a device that the library knows.
type Device struct {
	Name      string
	GUID      uint64
	Node      NodeType
	Transport Transport
}

// AtomicCap says what a device's atomics are atomic with respect to.
type AtomicCap uint8

// Kinds of atomicity.
const (
	AtomicNone   AtomicCap = iota
	AtomicHCA              // other atomics of the same device
	AtomicGlobal           // the CPU, too
)

func (a AtomicCap) String() string {
	return text([]string{"none", "within the device", "global"}, int(a), "atomicity")
}

// DeviceAttr are the limits of a device.
type DeviceAttr struct {
	FirmwareVersion                string
	NodeGUID                       uint64
	VendorID, VendorPartID, HWVer  uint32
	MaxMRSize, PageSizes           uint64 // of a region in bytes; the page sizes as bits
	MaxQP, MaxQPWR                 int
	MaxSGE, MaxSGERead             int
	MaxCQ, MaxCQE, MaxMR, MaxPD    int
	MaxQPRdAtom, MaxQPInitRdAtom   int // pending reads and atomics of a queue pair, as target and as initiator
	MaxSRQ, MaxSRQWR, MaxAH, MaxMW int
	AtomicCap                      AtomicCap
	Ports                          int // numbered from 1
}

// A PortState is the logical state of a port.
type PortState uint8

// States of ports.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

func (s PortState) String() string {
	return text([]string{"no state", "down", "initializing", "armed", "active", "active (deferred)"}, int(s), "state")
}

// A PhysState is the state of a port's link.
type PhysState uint8

func (s PhysState) String() string {
	return text([]string{"", "sleep", "polling", "disabled", "training", "link up", "recovering", "testing"}, int(s), "state")
}

// A LinkLayer is the link layer of a port.
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

func (l LinkLayer) String() string {
	return text([]string{"unspecified", "InfiniBand", "Ethernet"}, int(l), "link layer")
}

// PortAttr is the state of a port at the time of the call.
type PortAttr struct {
	State       PortState
	PhysState   PhysState
	LinkLayer   LinkLayer
	MTU, MaxMTU int // in bytes, the active one and the device's
	LID, SMLID  uint16
	GIDs        int // the length of the table
	MaxMsg      uint32
	Speed       float64 // in Gbit/s, all lanes together; 0 if unknown
	GRHRequired bool
}

// A GIDType is the type of a GID.
type GIDType uint8

// Types of GIDs.
const (
	GIDIB GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
)

func (g GIDType) String() string {
	return text([]string{"IB", "RoCE v1", "RoCE v2"}, int(g), "GID type")
}

// A GIDEntry is an entry of a port's address table.
type GIDEntry struct {
	Index  int
	GID    [16]byte // as an IPv6 address; an IPv4 one is ::ffff:a.b.c.d
	Type   GIDType
	NetDev string // the network interface, or empty
}
