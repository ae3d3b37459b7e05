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

// The versions of everything that p2p says on its socket.
const (
	minVersion = 1
	maxVersion = 1
)

const (
	helloMagic = "morip2p\n"
	helloLen   = len(helloMagic) + 2 + 2 + 16
)

// Each side hands the other a page with the fence of its memory: who copies from or to memory of
// the other process, on whatever device, is counted there.
const (
	pageBytes   = 4096
	pageClosed  = 0
	pageCopying = 64
)

// process is what this process is known by: one random number for all its connections. Two
// processes may have one id in two pid namespaces.
var process = sync.OnceValue(func() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
})

// A hello is what both sides send first on a new socket, with the memfd of their page beside it.
type hello struct {
	minVersion, maxVersion uint16
	process                [16]byte
}

func (h *hello) encode() []byte {
	b := append(make([]byte, 0, helloLen), helloMagic...)
	b = binary.BigEndian.AppendUint16(b, h.minVersion)
	b = binary.BigEndian.AppendUint16(b, h.maxVersion)
	return append(b, h.process[:]...)
}

// parseHello answers any input; what it accepts speaks our version.
func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloLen || string(b[:len(helloMagic)]) != helloMagic {
		return h, fmt.Errorf("greeting is not of mori's p2p: %w", fabric.ErrProtocol)
	}
	b = b[len(helloMagic):]
	h.minVersion, h.maxVersion = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	copy(h.process[:], b[4:])
	if h.minVersion > maxVersion || h.maxVersion < minVersion {
		return h, fmt.Errorf("peer speaks p2p versions %d to %d, here are %d to %d: %w", h.minVersion, h.maxVersion, minVersion, maxVersion, fabric.ErrProtocol)
	}
	return h, nil
}

// A greeting is what two sides know of each other before the stream's own handshake.
type greeting struct {
	ours, theirs []byte // the pages
	peer         *local.Peer
	same         bool // the peer is in this process

	unmap runtime.Cleanup // for a greeting that never became a connection
}

// greet exchanges hellos over conn, which both sides do at once. conn has a deadline.
func greet(conn *net.UnixConn) (_ *greeting, err error) {
	g := &greeting{}
	defer func() {
		if err != nil {
			g.Release()
		}
	}()
	if g.peer, err = local.OpenPeer(conn); err != nil {
		return nil, err
	}
	g.ours, err = local.Send(conn, "mori-p2p-fence", pageBytes, func([]byte) ([]byte, error) {
		h := hello{minVersion: minVersion, maxVersion: maxVersion, process: process()}
		return h.encode(), nil
	})
	if err != nil {
		return nil, err
	}
	g.theirs, err = local.Receive(conn, helloLen, pageBytes, func(b []byte) error {
		h, err := parseHello(b)
		g.same = h.process == process() && g.peer.PID == os.Getpid() // a peer may say what it heard
		return err
	})
	if err != nil {
		return nil, err
	}
	g.unmap = runtime.AddCleanup(g, unmap, [2][]byte{g.ours, g.theirs})
	return g, nil
}

// Release unmaps the pages and closes what the greeting opened. The socket is the stream's.
func (g *greeting) Release() {
	g.unmap.Stop()
	unmap([2][]byte{g.ours, g.theirs})
	g.ours, g.theirs = nil, nil
	if g.peer != nil {
		g.peer.Close()
	}
}

func unmap(pages [2][]byte) {
	for _, m := range pages {
		if m != nil {
			_ = sys.Free(m)
		}
	}
}

// fenceIn is the fence of a page.
func fenceIn(page []byte) local.Fence {
	at := sys.AddrOf(page)
	return local.Fence{Closed: at + pageClosed, Copying: at + pageCopying}
}
