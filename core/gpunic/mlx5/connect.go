// SPDX-License-Identifier: MIT

package mlx5

import (
	"encoding/binary"
	"fmt"
)

// A RemoteEnd is what one side sends to the other in order to connect.
type RemoteEnd struct {
	QPN, PSN uint32
	LID      uint16
	MTU      uint16 // in bytes
	GID      GID
	MAC      [6]byte
}

// RemoteEndBytes is the size of an encoded RemoteEnd.
const RemoteEndBytes = 34

// Put writes the end to the RemoteEndBytes of b.
func (r RemoteEnd) Put(b []byte) {
	if _, err := binary.Encode(b[:RemoteEndBytes], binary.BigEndian, r); err != nil {
		panic(err) // all fields have a fixed size
	}
}

// Parse parses what Put wrote.
func (r *RemoteEnd) Parse(b []byte) error {
	if len(b) < RemoteEndBytes {
		return fmt.Errorf("end of a queue in %d bytes, want %d: %w", len(b), RemoteEndBytes, ErrFormat)
	}
	_, err := binary.Decode(b[:RemoteEndBytes], binary.BigEndian, r)
	return err
}

// A PathConfig configures a connection. The zero value is a good choice.
type PathConfig struct {
	AckTimeout  uint32 // 4.096 us << AckTimeout until a retransmission; 0 is 16 (268 ms)
	Retries     int    // of an entry without a response; 0 is 7, negative is none
	RNRRetries  int    // while the peer has no receive entry; 0 is 7 (no limit), negative is none
	MinRNRTimer uint32 // code of the time that this side asks the peer to wait then; 0 is 12 (0.64 ms)
}

const (
	defaultAckTimeout  = 16
	defaultRetries     = 7
	defaultMinRNRTimer = 12
	logReads           = 4 // pending reads and atomics in each direction
	logMaxMessage      = 30
)

func count(n, def int) uint32 {
	switch {
	case n == 0:
		return uint32(def)
	case n < 0:
		return 0
	}
	return uint32(min(n, 7))
}

func orDefault(v, def uint32) uint32 {
	if v == 0 {
		return def
	}
	return v
}

func (q *Queue) port() Port { return q.dev.info.Ports[0] }

func (q *Queue) mtu() int { return min(q.port().MTU, 4096) }

// End returns this side of the queue, for the peer.
func (q *Queue) End() RemoteEnd {
	p := q.port()
	return RemoteEnd{QPN: q.qpn, PSN: q.psn, LID: p.LID, MTU: uint16(q.mtu()), GID: p.GID, MAC: p.MAC}
}

// init moves the queue pair from RST to INIT.
func (q *Queue) init() error {
	in := &ModifyQP{Op: OpRst2Init, QPN: q.qpn, QPC: QPContext{
		PathState: PathMigrated, RemoteRead: true, RemoteWrite: true, RemoteAtom: true, AtomicMode: AtomicUpTo8, Path: Path{Port: 1},
	}}
	var r Reply
	return q.dev.do(in, &r, &r)
}

// Connect moves the queue pair to RTS; then it executes entries. The other side must get this one's
// End and call Connect, too.
func (q *Queue) Connect(end RemoteEnd, path PathConfig) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("connect queue pair %#x: %w", q.qpn, ErrClosed)
	case q.connected:
		return fmt.Errorf("connect queue pair %#x: it is already connected: %w", q.qpn, ErrArgument)
	case end.MTU < 256:
		return fmt.Errorf("connect queue pair %#x: the peer's packets have %d bytes: %w", q.qpn, end.MTU, ErrArgument)
	}
	if err := q.connect(end, path); err != nil {
		return fmt.Errorf("connect queue pair %#x of %s to %#x at %v: %w", q.qpn, q.dev.Name(), end.QPN, end.GID, err)
	}
	q.connected = true
	return nil
}

func (q *Queue) connect(end RemoteEnd, path PathConfig) error {
	var r Reply
	err := q.dev.do(&ModifyQP{Op: OpInit2RTR, QPN: q.qpn, QPC: QPContext{
		PathState: PathMigrated, MTU: mtuCode(min(q.mtu(), int(end.MTU))), LogMsgMax: logMaxMessage, RemoteQPN: end.QPN, NextRecvPSN: end.PSN,
		LogRRAMax: logReads, MinRNRNak: orDefault(path.MinRNRTimer, defaultMinRNRTimer), Path: q.path(end),
		RemoteRead: true, RemoteWrite: true, RemoteAtom: true, AtomicMode: AtomicUpTo8,
	}}, &r, &r)
	if err != nil {
		return err
	}
	return q.dev.do(&ModifyQP{Op: OpRTR2RTS, QPN: q.qpn, QPC: QPContext{
		PathState: PathMigrated, NextSendPSN: q.psn, LogSRAMax: logReads, RetryCount: count(path.Retries, defaultRetries),
		RNRRetry: count(path.RNRRetries, 7), Path: Path{AckTimeout: orDefault(path.AckTimeout, defaultAckTimeout), Port: 1},
	}}, &r, &r)
}

// path returns the path to a peer: by GID and MAC over Ethernet, by LID over InfiniBand.
func (q *Queue) path(end RemoteEnd) Path {
	p := Path{Port: 1, RLID: uint32(end.LID)}
	if !q.port().Ethernet {
		return p
	}
	p.RLID, p.GID, p.SourceIndex, p.HopLimit, p.GRH = 0, end.GID, uint32(q.port().GIDIndex), 64, false
	p.MACHigh16 = uint32(binary.BigEndian.Uint16(end.MAC[:]))
	p.MACLow32 = binary.BigEndian.Uint32(end.MAC[2:])
	p.UDPSourcePort = 0xc000 | (q.qpn^end.QPN)&0x3fff // RoCE v2 routers use it to spread flows
	return p
}

// mtuCode returns the code of the largest packet size up to n bytes.
func mtuCode(n int) uint32 {
	code := uint32(1)
	for code < 5 && 256<<code <= n {
		code++
	}
	return code
}

// State queries the NIC for the state of the queue pair.
func (q *Queue) State() (uint32, error) {
	var r QueryQPReply
	err := q.dev.do(&Simple{Op: OpQueryQP, ID: q.qpn}, &r, &r.Reply)
	return r.QPC.State, err
}

// Fail moves the queue pair to ERR. Posted entries complete as flushed.
func (q *Queue) Fail() error { return q.dev.simple(Op2Err, q.qpn) }
