// SPDX-License-Identifier: MIT

package shm

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"runtime"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/pages"
	"mori/core/provider/internal/local"
	"mori/core/provider/shm/internal/ring"
)

// A greeting is the result of the exchange before the stream's own handshake: the rings, and how
// this side can copy.
type greeting struct {
	inbound, outbound []byte // mappings of the rings
	peer              *local.Peer
	reach             reach
	pages             *local.Pages // nil if the peer is this process, or this side may not see its pages
	messages          bool         // both sides can access each other's memory, so messages use the rings

	unmap runtime.Cleanup // for a greeting that never became a connection
}

// Release unmaps the rings and closes what the greeting opened. It leaves the socket to the stream.
func (g *greeting) Release() {
	g.unmap.Stop()
	unmap([2][]byte{g.inbound, g.outbound})
	g.inbound, g.outbound = nil, nil
	if g.peer != nil {
		g.peer.Close()
	}
	g.pages.Close()
}

// present reports whether all pages of the peer at list are in memory.
func (g *greeting) present(list []sys.Iovec, s *slice) bool {
	if g.reach.way == wayMemmove {
		return pages.Resident(list, &s.resident)
	}
	return g.pages.Present(list, s.entries[:])
}

func unmap(rings [2][]byte) {
	for _, m := range rings {
		if m != nil {
			_ = sys.Free(m)
		}
	}
}

// greet exchanges hellos over conn, which both sides do at the same time, and finds out how this
// side can access the peer's memory. conn has a deadline.
func greet(conn *net.UnixConn, opts *Options) (_ *greeting, err error) {
	g := &greeting{}
	defer func() {
		if err != nil {
			g.Release()
		}
	}()
	if g.peer, err = local.OpenPeer(conn); err != nil {
		return nil, err
	}
	if err = g.sendHello(conn); err != nil {
		return nil, err
	}
	h, err := g.receiveHello(conn)
	if err != nil {
		return nil, err
	}
	g.reach = findReach(g.peer.Cred, h, opts)
	if g.reach.way == wayCMA && !g.peer.Followed() {
		g.reach = reach{way: wayStream, reason: fmt.Sprintf("no pidfd of process %d, so a reuse of its pid could not be detected", g.peer.PID)}
	}
	g.pages = g.reach.openPages(g.peer)
	if err = g.agree(conn); err != nil {
		return nil, err
	}
	g.unmap = runtime.AddCleanup(g, unmap, [2][]byte{g.inbound, g.outbound})
	return g, nil
}

// What a side reports after the hellos about its access to the other's memory: one byte.
const (
	reachesNot = iota
	reaches
)

// agree reports to the peer whether this side can access its memory, and reads the peer's report.
func (g *greeting) agree(conn *net.UnixConn) error {
	said := [1]byte{reachesNot}
	if g.reach.way != wayStream {
		said[0] = reaches
	}
	g.messages = said[0] == reaches
	if _, err := conn.Write(said[:]); err != nil {
		return fmt.Errorf("send handshake: %w", err)
	}
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return fmt.Errorf("receive handshake: %w", err)
	}
	if said[0] > reaches {
		return fmt.Errorf("handshake ends with byte %d, want 0 or 1: %w", said[0], fabric.ErrProtocol)
	}
	g.messages = g.messages && said[0] == reaches
	return nil
}

// sendHello makes the inbound ring and announces it to the peer.
func (g *greeting) sendHello(conn *net.UnixConn) (err error) {
	g.inbound, err = local.SendMemory(conn, "mori-shm-ring", ring.Bytes, func(mem []byte) ([]byte, error) {
		h := hello{minVersion: minVersion, maxVersion: maxVersion, ringEntries: ring.Entries, proofAddr: sys.AddrOf(mem) + ring.Proof}
		if _, err := rand.Read(h.proof[:]); err != nil {
			return nil, fmt.Errorf("random proof: %w", err)
		}
		copy(mem[ring.Proof:], h.proof[:])
		return h.encode(), nil
	})
	return err
}

// receiveHello reads exactly the peer's hello, and maps the peer's ring.
func (g *greeting) receiveHello(conn *net.UnixConn) (h hello, err error) {
	g.outbound, err = local.ReceiveMemory(conn, helloLen, ring.Bytes, func(b []byte) (err error) {
		h, err = parseHello(b)
		return err
	})
	return h, err
}
