// SPDX-License-Identifier: MIT

package conn

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/handshake"
	"mori/core/provider/internal/socket"
)

// A Config describes the Fabric that New makes.
type Config struct {
	Info       fabric.Info // the answer of GetInfo: names, limits, capabilities
	Transport  handshake.Transport
	Links      int          // sockets per endpoint, 1 to MaxLinks
	Logger     *slog.Logger // nil: slog.Default()
	Checksum   bool         // checksum the payload that this side sends or reads
	Compress   Compression  // compress the payload that this side sends
	Decompress bool         // accept compressed payload from peers

	// Handshake bounds each handshake on the passive side; 0 means 5 s.
	Handshake time.Duration

	// Compressed, if set, counts the frames whose payload was sent compressed.
	Compressed *atomic.Uint64

	// Rate, if set, returns the measured rate of a socket in bytes/s, or 0 if it is not known.
	// CompressIfFaster needs it.
	Rate func(net.Conn) float64

	// CheckAddr, if set, refuses an address that is invalid for this transport. Its error wraps
	// fabric.ErrInvalid.
	CheckAddr func(fabric.Addr) error

	// Attach, if set, is called once per endpoint, after its sockets are connected and before any
	// frame is read or written. extra is what Transport.Prelude returned for the first socket. An
	// error ends the connection attempt. If Attach returns nil, all payload uses the stream.
	Attach func(p Port, extra any) (DataPath, error)

	// OpenDomain, if set, is called for each new domain before any other code can use it.
	OpenDomain func(d *Domain)
}

// compression returns the compression settings of a stream.
func (c *Config) compression() socket.Compression {
	return socket.Compression{Always: c.Compress == CompressSmaller, Count: c.Compressed, Rate: c.Rate}
}

// checksumFlag returns FlagChecksum if this side wants payload checksums.
func (c *Config) checksumFlag() uint16 {
	if c.Checksum {
		return frame.FlagChecksum
	}
	return 0
}

// can returns the features that do not depend on the domain.
func (c *Config) can() uint16 {
	if c.Decompress && frame.CanCompress {
		return frame.FeatureDecompress | frame.FeatureFault
	}
	return frame.FeatureFault
}

// A Compression says when payload is compressed before it is sent.
type Compression uint8

// The compressions.
const (
	CompressNever    Compression = iota
	CompressIfFaster             // if the measurements say that the payload arrives sooner
	CompressSmaller              // whenever the payload becomes smaller: for tests
)

// A Ticket identifies an op from Submit until the op ends.
type Ticket uint32

// A DataPath moves the payload of reads and writes without the sockets. Its methods are called from
// several goroutines.
type DataPath interface {
	// RMA takes over an op, or returns false to let the op go through the sockets. A DataPath that
	// takes the op calls Port.Finish, Port.Forward or Port.HandBack exactly once, before or after
	// RMA returns. op stays valid until then. When RMA is called, the op has been checked
	// (fabric/util.CheckOp), its fences have been waited for, and room in the queue is reserved.
	// RMA does not block.
	RMA(t Ticket, op *fabric.Op, key fabric.RegionKey) bool

	// Frame handles an extension frame of the peer, in the order in which the peer sent them. body
	// is valid until Frame returns. Frame must not block, because it blocks the socket's reader. An
	// error ends the connection.
	Frame(kind uint8, body []byte) error

	// Close is called once, when the connection has ended because of cause. When Close returns, no
	// copy is pending and no memory of an op or region is accessed any more. Finish or Forward was
	// called for each op, and receives that the DataPath took from Port.Feed have ended.
	Close(cause error)

	// Describe returns the path's name and the reason for it, for fabric.Prober.
	Describe() (name, reason string)
}

// A MessagePath is a DataPath that also moves messages.
type MessagePath interface {
	// Messages reports whether this side's sends also use the path. The result is constant for a
	// connection.
	Messages() bool

	// Send takes over a message. Calls come one at a time, in the order of submission. As in RMA,
	// op is valid until the path calls Port.Finish. The path calls it exactly once, before or after
	// Send returns.
	Send(t Ticket, op *fabric.Op)

	// Changed is called when receives were posted after Take or Hold of Port.Feed returned false;
	// see receive.FeedConfig.
	Changed()

	// Placed is called when a message that the path delivered with a token has been copied to the
	// memory of a receive.
	Placed(token uint64)
}
