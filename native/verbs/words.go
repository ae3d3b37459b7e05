// SPDX-License-Identifier: MIT

package verbs

import "fmt"

// Objects of the library. Zero is none.
type (
	Context uintptr // an open device
	PD      uintptr // a protection domain
	MR      uintptr // a memory region
	Channel uintptr // a completion channel
	CQ      uintptr // a completion queue
	QP      uintptr // a queue pair
)

// Access are the rights of a region or a queue pair.
type Access uint32

// Rights. Local reads are always allowed; remote writes and atomics want AccessLocalWrite too.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	// AccessRelaxedOrdering lets writes to the region pass each other; a device that does not know it is not told.
	AccessRelaxedOrdering Access = 1 << 20
)

// Keys are those of a region: Local for the SGEs of our own work requests, Remote for those of peers.
type Keys struct{ Local, Remote uint32 }

// An SGE is a run of registered memory.
type SGE struct {
	Addr      uint64
	Len, LKey uint32
}

// What a SendWR does.
const (
	OpWrite uint8 = iota
	OpWriteImm
	OpSend
	OpSendImm
	OpRead
	OpCompareSwap
	OpFetchAdd
)

// Flags of a SendWR.
const (
	Fence     uint8 = 1 << 0 // begin when all reads and atomics before are done
	Signaled  uint8 = 1 << 1 // make a WC of its success; failures always make one
	Solicited uint8 = 1 << 2
	Inline    uint8 = 1 << 3 // the bytes are read before PostSend returns, and their LKey is not
)

// A SendWR is a work request of a send queue. Its SGEs are sges[First:First+Count] of PostSend. Writes, reads and atomics have RemoteAddr and
// RKey; OpFetchAdd adds CompareAdd, OpCompareSwap puts Swap where CompareAdd is found, and both write the 8 bytes that were there to the SGE.
type SendWR struct {
	ID, RemoteAddr, CompareAdd, Swap uint64
	RKey, Imm                        uint32
	First, Count                     uint32
	Op, Flags                        uint8
}

// A RecvWR is a work request of a receive queue. Its SGEs are sges[First:First+Count] of PostRecv.
type RecvWR struct {
	ID           uint64
	First, Count uint32
}

// What a WC is of.
const (
	WCSend         uint8 = 0
	WCWrite        uint8 = 1
	WCRead         uint8 = 2
	WCCompareSwap  uint8 = 3
	WCFetchAdd     uint8 = 4
	WCRecv         uint8 = 128
	WCRecvWriteImm uint8 = 129
)

// A WC is a work completion. Of one whose Status is not StatusSuccess only ID, Status, VendorErr and QPNum say something.
type WC struct {
	ID        uint64
	Status    Status
	VendorErr uint32 // the vendor's syndrome
	Bytes     uint32 // of receives, reads and atomics
	Imm       uint32 // as it was given to PostSend, if HasImm
	QPNum     uint32
	Op        uint8
	HasImm    bool
}

// A Status is how a work request ended.
type Status uint32

// Statuses.
const (
	StatusSuccess Status = iota
	StatusLocLen
	StatusLocQPOp
	StatusLocEECOp
	StatusLocProt
	StatusFlushed
	StatusMWBind
	StatusBadResp
	StatusLocAccess
	StatusRemInvReq
	StatusRemAccess
	StatusRemOp
	StatusRetryExceeded
	StatusRNRExceeded
	StatusLocRDDViol
	StatusRemInvReadReq
	StatusRemAborted
	StatusInvEECN
	StatusInvEECState
	StatusFatal
	StatusRespTimeout
	StatusGeneral
	StatusTM
	StatusTMRendezvous
)

var statusText = []string{
	"success", "local length error", "local queue pair operation error", "local EE context operation error", "local protection error",
	"flushed, the queue pair is in error", "memory window bind error", "bad response", "local access error", "remote invalid request",
	"remote access error", "remote operation error", "the peer does not answer, retries exceeded", "the peer has no receive posted, retries exceeded",
	"local RDD violation", "remote invalid read request", "remote aborted", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout", "general error", "tag matching error", "tag matching rendezvous incomplete",
}

func (s Status) String() string { return text(statusText, int(s), "status") }

// text is names[i], or the number where there is none.
func text(names []string, i int, what string) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}

// A State is that of a queue pair.
type State uint8

// States. A new queue pair is in StateReset.
const (
	StateReset State = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

func (s State) String() string {
	return text([]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, int(s), "state")
}

// A Transport is what a device speaks.
type Transport int8

// Transports. RoCE is TransportIB; EFA and other vendors' own ones are TransportUnspecified.
const (
	TransportUnknown Transport = iota - 1
	TransportIB
	TransportIWARP
	TransportUSNIC
	TransportUSNICUDP
	TransportUnspecified
)

func (t Transport) String() string {
	return text([]string{"unknown", "IB", "iWARP", "usNIC", "usNIC UDP", "unspecified"}, int(t)+1, "transport")
}

// A NodeType is what a device is in its fabric.
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
	return text([]string{"unknown", "", "CA", "switch", "router", "RNIC", "usNIC", "usNIC UDP", "unspecified"}, int(n)+1, "node type")
}

// A Device is one that the library knows.
type Device struct {
	Name      string
	GUID      uint64
	Node      NodeType
	Transport Transport
}

// AtomicCap is what the atomics of a device are atomic to.
type AtomicCap uint8

// Kinds of atomicity.
const (
	AtomicNone   AtomicCap = iota
	AtomicHCA              // to others of the same device
	AtomicGlobal           // to the CPU too
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
	MaxQPRdAtom, MaxQPInitRdAtom   int // reads and atomics under way at a queue pair as their target, and as who asks
	MaxSRQ, MaxSRQWR, MaxAH, MaxMW int
	AtomicCap                      AtomicCap
	Ports                          int // they are numbered from 1
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

// A LinkLayer is what is below a port.
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

// PortAttr is a port at the time of the call.
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

// A GIDType is what a GID is for.
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

// A GIDEntry is one of a port's table of addresses.
type GIDEntry struct {
	Index  int
	GID    [16]byte // as an IPv6 address; an IPv4 one is ::ffff:a.b.c.d
	Type   GIDType
	NetDev string // the network interface, empty if there is none
}

// An EventKind is what an AsyncEvent says.
type EventKind uint8

// Kinds of events.
const (
	EventCQErr EventKind = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

func (k EventKind) String() string {
	return text([]string{
		"completion queue error", "queue pair fatal error", "queue pair request error", "queue pair access error", "communication established",
		"send queue drained", "path migrated", "path migration failed", "device fatal error", "port active", "port error", "LID changed",
		"P_Key table changed", "subnet manager changed", "shared receive queue error", "shared receive queue limit reached", "last work request reached",
		"client reregistration", "GID table changed", "work queue fatal error",
	}, int(k), "event")
}

// An AsyncEvent is news of a device. Events of queue pairs have QPNum, those of completion queues CQ, those of ports Port.
type AsyncEvent struct {
	Kind  EventKind
	Port  int
	QPNum uint32
	CQ    CQ
}

// QPInit says how large the queues of a pair are, in work requests, SGEs of each, and bytes that go inline.
type QPInit struct {
	SendCQ, RecvCQ                           CQ
	SendWR, RecvWR, SendSGE, RecvSGE, Inline int
	SigAll                                   bool // each SendWR is Signaled
}

// RTR is how a queue pair reaches its peer.
type RTR struct {
	MTU                          int // in bytes: 256, 512, 1024, 2048 or 4096, the same on both sides
	DestQP, PSN                  uint32
	Port, GIDIndex               int // ours
	GID                          [16]byte
	LID                          uint16
	Global                       bool // GID is used; always so with RoCE
	SL, TrafficClass, HopLimit   uint8
	MaxDestRdAtomic, MinRNRTimer uint8
}

// RTS is how a queue pair sends. Timeout is 4.096 µs times two to its power, 0 for ever; 7 Retries or RNRRetries are, for the latter, endless.
type RTS struct {
	PSN                                       uint32
	Timeout, Retries, RNRRetries, MaxRdAtomic uint8
}
