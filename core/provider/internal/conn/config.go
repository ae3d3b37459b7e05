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

// A Config makes a Fabric.
type Config struct {
	Info       fabric.Info // what GetInfo answered: names, limits, capabilities
	Transport  handshake.Transport
	Links      int          // sockets per endpoint, 1 to MaxLinks
	Logger     *slog.Logger // nil: slog.Default()
	Checksum   bool         // payload that this side sends or reads is checked
	Compress   Compression  // payload that this side sends becomes smaller
	Decompress bool         // peers may send such payload

	// Handshake bounds each handshake on the passive side; 0 is 5 s.
	Handshake time.Duration

	// Compressed, if set, counts the frames whose payload was sent compressed.
	Compressed *atomic.Uint64

	// Rate, if set, is what a socket carries in bytes/s, as far as that was measured, else 0.
	// CompressIfFaster needs it.
	Rate func(net.Conn) float64

	// CheckAddr, if set, refuses what is no address of this transport; its error wraps
	// fabric.ErrInvalid.
	CheckAddr func(fabric.Addr) error

	// Attach, if set, is called once per endpoint when its sockets are connected and before any
	// frame is read or written. extra is the first socket's. An error ends the connection attempt.
	// It may return nil: then everything goes through the stream.
	Attach func(p Port, extra any) (DataPath, error)

	// OpenDomain, if set, is called for each new domain, before anybody else sees it.
	OpenDomain func(d *Domain)
}

// compression is how payload is compressed.
func (c *Config) compression() socket.Compression {
	return socket.Compression{Always: c.Compress == CompressSmaller, Count: c.Compressed, Rate: c.Rate}
}

// checksumFlag is FlagChecksum if this side wants payload checked.
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
	CompressIfFaster             // where the bytes get through sooner, by what was measured
	CompressSmaller              // wherever they become fewer, whatever it costs: for tests
)

// A Ticket names an op that Submit took, until it ended.
type Ticket uint32

// A DataPath moves the payload of reads and writes beside the sockets. Its methods are called from
// several goroutines.
type DataPath interface {
	// RMA takes an op over, or returns false: then the op goes through the sockets. A DataPath that
	// takes it calls Port.Finish, Port.Forward or Port.HandBack exactly once, before or after RMA
	// returns. op stays valid until then. The op was checked (fabric/util.CheckOp), fences were
	// waited for, room in the queue is reserved. RMA does not wait.
	RMA(t Ticket, op *fabric.Op, key fabric.RegionKey) bool

	// Frame takes an extension frame of the peer, in the order of their sending. body is valid
	// until it returns. It does not wait: the socket stands still meanwhile. An error ends the
	// connection.
	Frame(kind uint8, body []byte) error

	// Close is called once, when the connection ended by cause. When it returns, no copy is
	// pending, nobody touches the memory of an op or region any more, Finish or Forward was called
	// for each op, and receives that the DataPath took from Port.Feed have ended.
	Close(cause error)

	// Describe is what fabric.Prober says of this connection.
	Describe() (name, reason string)
}

// A MessagePath is a DataPath that also moves messages.
type MessagePath interface {
	// Messages reports whether this side's sends are the path's, too. Constant for a connection.
	Messages() bool

	// Send takes a message over. The calls come one at a time, in the order of submission. What RMA
	// says of op holds here, too. The path calls Port.Finish exactly once, before or after Send
	// returns.
	Send(t Ticket, op *fabric.Op)

	// Changed is called when receives were posted after Take or Hold of Port.Feed said no; see
	// receive.FeedConfig.
	Changed()

	// Placed is called when a message that the path delivered with a token is in the memory of a
	// receive.
	Placed(token uint64)
}
