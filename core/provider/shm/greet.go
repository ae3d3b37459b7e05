// SPDX-License-Identifier: MIT

package shm

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A greeting is what two sides know of each other before the stream's own handshake: the rings and how to copy.
type greeting struct {
	inbound, outbound []byte // mappings of the rings
	cred              sys.Cred
	socket            syscall.RawConn
	pidfd             *os.File // of the peer's process, nil if the kernel gave none
	reach             reach
	messages          bool // both sides reach each other: messages go through the rings

	unmap runtime.Cleanup // for a greeting that never became a connection
}

// free unmaps the rings and closes what the greeting opened. The socket is the stream's.
func (g *greeting) free() {
	g.unmap.Stop()
	unmap([2][]byte{g.inbound, g.outbound})
	g.inbound, g.outbound = nil, nil
	if g.pidfd != nil {
		_ = g.pidfd.Close()
	}
}

func unmap(rings [2][]byte) {
	for _, m := range rings {
		if m != nil {
			_ = sys.Free(m)
		}
	}
}

// greet exchanges hellos over conn, which both sides do at once, and finds out how this side reaches the peer's memory. conn has a deadline.
func greet(conn *net.UnixConn, opts *Options) (_ *greeting, err error) {
	g := &greeting{}
	defer func() {
		if err != nil {
			g.free()
		}
	}()
	if g.socket, err = conn.SyscallConn(); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if err = g.findCred(); err != nil {
		return nil, err
	}
	g.pidfd = openPidfd(g.cred.PID)
	if err = g.sendHello(conn); err != nil {
		return nil, err
	}
	h, err := g.receiveHello(conn)
	if err != nil {
		return nil, err
	}
	g.reach = findReach(g.cred, h, opts)
	if err = g.agree(conn); err != nil {
		return nil, err
	}
	g.unmap = runtime.AddCleanup(g, unmap, [2][]byte{g.inbound, g.outbound})
	return g, nil
}

// What a side says of its way to the other's memory, after the hellos: a byte.
const (
	reachesNot = iota
	reaches
)

// agree tells the peer whether this side reaches its memory, and hears the same.
func (g *greeting) agree(conn *net.UnixConn) error {
	said := [1]byte{reachesNot}
	if g.reach.way != wayStream {
		said[0] = reaches
	}
	g.messages = said[0] == reaches
	if _, err := conn.Write(said[:]); err != nil {
		return fmt.Errorf("send greeting: %w", err)
	}
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return fmt.Errorf("receive greeting: %w", err)
	}
	if said[0] > reaches {
		return fmt.Errorf("greeting ends in %d: %w", said[0], fabric.ErrProtocol)
	}
	g.messages = g.messages && said[0] == reaches
	return nil
}

func (g *greeting) findCred() (err error) {
	if e := g.socket.Control(func(fd uintptr) { g.cred, err = sys.PeerCred(int(fd)) }); e != nil {
		return fmt.Errorf("peer credentials: %w", e)
	}
	return err
}

// sendHello makes the inbound ring and tells the peer about it.
func (g *greeting) sendHello(conn *net.UnixConn) error {
	fd, err := sys.Memfd("mori-shm-ring", ringBytes)
	if err != nil {
		return err
	}
	defer sys.CloseFD(fd)
	if g.inbound, err = sys.MapShared(fd, ringBytes); err != nil {
		return err
	}
	h := hello{minVersion: minVersion, maxVersion: maxVersion, ringEntries: ringEntries, proofAddr: sys.AddrOf(g.inbound) + ringProof}
	if _, err = rand.Read(h.proof[:]); err != nil {
		return fmt.Errorf("random proof: %w", err)
	}
	copy(g.inbound[ringProof:], h.proof[:])
	if _, _, err = conn.WriteMsgUnix(h.encode(), sys.Rights(fd), nil); err != nil {
		return fmt.Errorf("send greeting: %w", err)
	}
	return nil
}

// receiveHello reads exactly the peer's hello, since the stream's bytes follow, and maps the peer's ring.
func (g *greeting) receiveHello(conn *net.UnixConn) (h hello, err error) {
	ringFD := -1
	defer func() {
		if ringFD >= 0 {
			_ = sys.CloseFD(ringFD)
		}
	}()
	b, oob := make([]byte, helloLen), make([]byte, sys.RightsLen)
	for got := 0; got < helloLen; {
		n, oobn, _, _, err := conn.ReadMsgUnix(b[got:], oob)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return h, fmt.Errorf("receive greeting: %w", err)
		}
		got += n
		for _, fd := range sys.ParseRights(oob[:oobn]) {
			if ringFD >= 0 {
				_ = sys.CloseFD(ringFD)
			}
			ringFD = fd
		}
	}
	if h, err = parseHello(b); err != nil {
		return h, err
	}
	if ringFD < 0 {
		return h, fmt.Errorf("greeting without a ring: %w", fabric.ErrProtocol)
	}
	g.outbound, err = sys.MapShared(ringFD, ringBytes)
	return h, err
}
