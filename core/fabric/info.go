// SPDX-License-Identifier: MIT

package fabric

// Caps are capability bits: what an endpoint can do. Zero in hints is a wildcard.
type Caps uint64

// The capabilities. Primary ones are granted only if requested; secondary ones may be granted
// anyway.
const (
	CapMSG          Caps = 1 << iota // send and recv
	CapRMA                           // read and write
	CapAtomic                        // atomics
	CapTagged                        // tagged matching: described by kOFI, offered by no provider yet
	CapHMEM                          // device memory
	CapMultiRecv                     // many messages into one receive buffer: offered by no provider yet
	CapRMAEvent                      // counters at the target of RMA: offered by no provider yet
	CapTrigger                       // triggered operations: offered by no provider yet
	CapLocalComm                     // secondary: peers of this host
	CapRemoteComm                    // secondary: peers of other hosts
	CapSource                        // secondary: Completion.Src is the sender
	CapDirectedRecv                  // receives from one peer only: offered by no provider yet
	CapSharedCtx                     // receive queues shared between endpoints: offered by no provider yet
	CapScalable                      // several transmit contexts with one address: offered by no provider yet
)

// CapsSecondary are the capabilities that a provider may grant without a request.
const CapsSecondary = CapLocalComm | CapRemoteComm | CapSource

// Mode are requirements that a provider places on its caller. Zero in hints means that the caller
// accepts none.
type Mode uint32

// The requirements.
const (
	// ModeDenialFatal: if the target denies an access, the connection may end, with ErrNoKey,
	// ErrAccess, ErrRange or ErrConnReset as the cause. The same holds for a message that is longer
	// than its receive. Queue pairs of NICs behave so.
	ModeDenialFatal Mode = 1 << iota
	// ModeKeyIsProof: regions have no secret. A small number is enough to access them.
	ModeKeyIsProof
)

// Order is the set of pairs of ops to one peer that take effect in submission order. The first
// letter is the later op's kind: with OrderRAW, a read after a write sees what was written. Atomics
// count as reads and as writes.
type Order uint32

// The pairs. They hold for ops of up to Limits.OrderRAW, OrderWAR and OrderWAW bytes where reads
// and writes overlap.
const (
	OrderRAR Order = 1 << iota
	OrderRAW
	OrderRAS
	OrderWAR
	OrderWAW
	OrderWAS
	OrderSAR
	OrderSAW
	OrderSAS

	OrderAll Order = 1<<iota - 1
)

// MRMode are the rules of a provider's memory registration. Zero in hints means that the caller
// follows none of them.
type MRMode uint32

// The rules. A provider without MRProvKey accepts a caller's RegionKey.
const (
	MRLocal    MRMode = 1 << iota // local buffers must be registered as well
	MRVirtAddr                    // remote addresses are the target's virtual ones, not offsets
	MRProvKey                     // the provider chooses keys; MR.Raw contains them
	MRHMEM                        // device memory must be registered
)

// EPType is the kind of an endpoint.
type EPType uint32

// The endpoint types. Zero in hints is a wildcard.
const (
	EPMsg EPType = 1 + iota // connected, reliable
	EPRDM                   // reliable datagram, needs an address vector
)

// An Addr is a provider's address in its own text form: "10.0.0.7:4791", "@mori-1f3c".
type Addr string

// A Version is a provider's or the API's version.
type Version struct{ Major, Minor uint16 }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// APIVersion is the version of this package, which providers are written for.
var APIVersion = Version{1, 0}

// Limits are numeric bounds: in hints, the minimum that the caller needs; in answers, what the
// provider has. Zero in hints is a wildcard.
type Limits struct {
	MaxMsg     uint64 // bytes of one op
	MaxInject  uint64 // bytes of one OpInject op
	MaxPrivate int    // bytes of connection private data
	CQDataSize int    // bytes of remote completion data
	TxSize     int    // pending ops per endpoint
	RxSize     int    // posted receives per endpoint
	SegLimit   int    // local segments of one op
	RSegLimit  int    // remote segments of one op
	BlockLimit int    // blocks of one op; 0: segments only
	MRKeySize  int    // bytes of MR.Raw
	MaxAtomic  uint64 // bytes of one atomic op
	BestOp     uint64 // bytes per op that give a large transfer the best throughput

	OrderRAW, OrderWAR, OrderWAW uint64 // Info.Order holds for ops of up to so many bytes
}

// Info describes one way to communicate. GetInfo fills it; Open, Domain, Listen and Endpoint take
// it.
type Info struct {
	Provider        string
	ProviderVersion Version
	FabricName      string // the network: "loopback", "10.0.0.0/8"
	DomainName      string // the device: "lo", "mlx5_0"
	Caps            Caps
	Mode            Mode
	MRMode          MRMode
	Order           Order // zero in hints is a wildcard
	EPType          EPType
	Src, Dest       Addr
	Limits          Limits
}

// Clone returns a copy that the caller may change.
func (in *Info) Clone() *Info {
	if in == nil {
		return &Info{}
	}
	out := *in
	return &out
}
