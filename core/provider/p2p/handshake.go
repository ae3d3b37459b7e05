// SPDX-License-Identifier: MIT

package p2p

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
)

// The versions of the protocol of p2p's handshake and frames.
const (
	minVersion = 1
	maxVersion = 1
)

const (
	handshakeMagic = "morip2p\n"
	handshakeLen   = len(handshakeMagic) + 2 + 2 + 16
)

// process identifies this process in handshakes: one random number for all its connections. Two
// processes in different pid namespaces may have the same pid.
var process = sync.OnceValue(func() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
})

// A handshakeMessage is the first message of both sides on a new socket, sent with the memfd of
// their fence.
type handshakeMessage struct {
	minVersion, maxVersion uint16
	process                [16]byte
}

func (h *handshakeMessage) encode() []byte {
	b := append(make([]byte, 0, handshakeLen), handshakeMagic...)
	b = binary.BigEndian.AppendUint16(b, h.minVersion)
	b = binary.BigEndian.AppendUint16(b, h.maxVersion)
	return append(b, h.process[:]...)
}

// parseHandshake accepts any input. It returns an error unless the peer speaks a version that we
// support.
func parseHandshake(b []byte) (h handshakeMessage, err error) {
	if len(b) != handshakeLen || string(b[:len(handshakeMagic)]) != handshakeMagic {
		return h, fmt.Errorf("handshake is not of mori's p2p: %w", fabric.ErrProtocol)
	}
	b = b[len(handshakeMagic):]
	h.minVersion, h.maxVersion = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	copy(h.process[:], b[4:])
	if h.minVersion > maxVersion || h.maxVersion < minVersion {
		return h, fmt.Errorf("peer supports p2p versions %d to %d, this side %d to %d: %w", h.minVersion, h.maxVersion, minVersion, maxVersion, fabric.ErrProtocol)
	}
	return h, nil
}

// A fence guards the memory of one process. Its page, which both processes map, counts the copies
// from or to that memory, whichever device of the other process executes them.
type fence struct {
	local.Fence
	page []byte
}

// Layout of the page.
const (
	pageBytes   = 4096
	pageClosed  = 0
	pageCopying = 64
)

func newFence(page []byte) fence {
	at := sys.AddrOf(page)
	return fence{local.Fence{Closed: at + pageClosed, Copying: at + pageCopying}, page}
}

// A peerProcess is the process at the other end, according to the handshake.
type peerProcess struct {
	process      *local.Peer
	same         bool  // it is this process
	ours, theirs fence // of our memory, which the peer's copies pass; of the peer's memory

	unmap runtime.Cleanup // if the connection is not established
}

// shakeHands exchanges handshakes over conn. Both sides do so at the same time. conn has a
// deadline.
func shakeHands(conn *net.UnixConn) (_ *peerProcess, err error) {
	p := &peerProcess{}
	defer func() {
		if err != nil {
			p.Release()
		}
	}()
	if p.process, err = local.OpenPeer(conn); err != nil {
		return nil, err
	}
	page, err := local.SendMemory(conn, "mori-p2p-fence", pageBytes, func([]byte) ([]byte, error) {
		h := handshakeMessage{minVersion: minVersion, maxVersion: maxVersion, process: process()}
		return h.encode(), nil
	})
	if err != nil {
		return nil, err
	}
	p.ours = newFence(page)
	page, err = local.ReceiveMemory(conn, handshakeLen, pageBytes, func(b []byte) error {
		h, err := parseHandshake(b)
		p.same = h.process == process() && p.process.PID == os.Getpid() // a peer may repeat our number
		return err
	})
	if err != nil {
		return nil, err
	}
	p.theirs = newFence(page)
	p.unmap = runtime.AddCleanup(p, unmap, [2][]byte{p.ours.page, p.theirs.page})
	return p, nil
}

// Release unmaps the fences and closes the process's handle. The stream keeps the socket.
func (p *peerProcess) Release() {
	p.unmap.Stop()
	unmap([2][]byte{p.ours.page, p.theirs.page})
	p.ours, p.theirs = fence{}, fence{}
	if p.process != nil {
		p.process.Close()
	}
}

func unmap(pages [2][]byte) {
	for _, m := range pages {
		if m != nil {
			_ = sys.Free(m)
		}
	}
}
