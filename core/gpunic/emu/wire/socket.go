// SPDX-License-Identifier: MIT

package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"mori/core/gpunic/mlx5"
)

// A socket is a wire between processes. Each NIC listens at the address in its GID, and dials the
// NICs that it sends to. A connection carries packets in one direction. In the handshake the
// dialing NIC sends both GIDs. The listener accepts it because it knows the listener's GID, which
// is partly random.
type socket struct {
	gid     mlx5.GID
	network string
	listen  net.Listener
	deliver func(Packet)
	running sync.WaitGroup
	stop    chan struct{}

	mu    sync.Mutex
	conns map[mlx5.GID]*conn
	taken map[net.Conn]bool
	shut  bool
}

// A conn carries packets to one NIC. Packets that do not fit into its queue are lost.
type conn struct {
	queue chan []byte
}

const (
	connQueue   = 1024
	dialTimeout = 2 * time.Second
	redial      = 50 * time.Millisecond
	handshake   = "moriemu1"
)

// tcpAt is the offset in a TCP wire's GID of the address (4 bytes) and the port.
const tcpAt = 2

func openSocket(network string, deliver func(Packet)) (Wire, mlx5.GID, error) {
	s := &socket{network: network, deliver: deliver, stop: make(chan struct{}), conns: map[mlx5.GID]*conn{}, taken: map[net.Conn]bool{}}
	address := "127.0.0.1:0"
	if network == "unix" {
		s.gid = newGID(gidUnix)
		address = unixAddress(s.gid)
	}
	var err error
	if s.listen, err = net.Listen(network, address); err != nil {
		return nil, s.gid, err
	}
	if network == "tcp" {
		s.gid = newGID(gidTCP)
		at := s.listen.Addr().(*net.TCPAddr).AddrPort()
		ip := at.Addr().Unmap().As4()
		copy(s.gid[tcpAt:], ip[:])
		binary.BigEndian.PutUint16(s.gid[tcpAt+4:], at.Port())
	}
	s.running.Add(1)
	go s.accept()
	return s, s.gid, nil
}

// unixAddress returns an abstract socket address, which disappears with the process.
func unixAddress(g mlx5.GID) string { return "@mori-emu-" + hex.EncodeToString(g[:]) }

func addressOf(g mlx5.GID) (network, address string, err error) {
	switch {
	case g[0] == gidPrefix && g[1] == gidUnix:
		return "unix", unixAddress(g), nil
	case g[0] == gidPrefix && g[1] == gidTCP:
		ip := netip.AddrFrom4([4]byte(g[tcpAt:]))
		return "tcp", netip.AddrPortFrom(ip, binary.BigEndian.Uint16(g[tcpAt+4:])).String(), nil
	}
	return "", "", fmt.Errorf("GID %v is unreachable from here: %w", g, mlx5.ErrArgument)
}

// Send queues the packet for a connection, which it dials first.
func (s *socket) Send(to mlx5.GID, p *Packet) {
	s.mu.Lock()
	l := s.conns[to]
	if l == nil && !s.shut {
		l = &conn{queue: make(chan []byte, connQueue)}
		s.conns[to] = l
		s.running.Add(1)
		go s.carry(to, l)
	}
	s.mu.Unlock()
	if l == nil {
		return
	}
	b := make([]byte, 4, 4+headerBytes+len(p.Data))
	b = p.Append(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	select {
	case l.queue <- b:
	default:
	}
}

// carry dials, writes packets, and redials when the connection breaks. Packets are lost until it is
// connected again.
func (s *socket) carry(to mlx5.GID, l *conn) {
	defer s.running.Done()
	for {
		if c, err := s.dial(to); err == nil {
			s.pump(c, l)
			s.forget(c)
		}
		select {
		case <-s.stop:
			return
		case <-time.After(redial):
		}
		for len(l.queue) > 0 {
			<-l.queue
		}
	}
}

func (s *socket) dial(to mlx5.GID) (net.Conn, error) {
	network, address, err := addressOf(to)
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout(network, address, dialTimeout)
	if err != nil {
		return nil, err
	}
	if !s.keep(c) {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	_ = c.SetWriteDeadline(time.Now().Add(dialTimeout))
	if _, err = c.Write(append(append([]byte(handshake), s.gid[:]...), to[:]...)); err != nil {
		s.forget(c)
		return nil, err
	}
	return c, c.SetWriteDeadline(time.Time{})
}

// pump writes packets until the connection breaks or the wire closes.
func (s *socket) pump(c net.Conn, l *conn) {
	w := bufio.NewWriterSize(c, 64<<10)
	for {
		select {
		case <-s.stop:
			return
		case b := <-l.queue:
			if _, err := w.Write(b); err != nil {
				return
			}
		}
		if len(l.queue) == 0 && w.Flush() != nil {
			return
		}
	}
}

// keep records a connection, so that Close can close it. It returns false if the wire is closed.
func (s *socket) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shut {
		s.taken[c] = true
	}
	return !s.shut
}

func (s *socket) forget(c net.Conn) {
	s.mu.Lock()
	delete(s.taken, c)
	s.mu.Unlock()
	_ = c.Close()
}

func (s *socket) accept() {
	defer s.running.Done()
	for {
		c, err := s.listen.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many descriptors, most likely
			select {
			case <-s.stop:
				return
			case <-time.After(redial):
			}
			continue
		}
		if !s.keep(c) {
			_ = c.Close()
			return
		}
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			defer s.forget(c)
			s.read(c)
		}()
	}
}

// read delivers the packets of a connection until it ends or sends invalid data.
func (s *socket) read(c net.Conn) {
	r := bufio.NewReaderSize(c, 64<<10)
	_ = c.SetReadDeadline(time.Now().Add(dialTimeout))
	var first [len(handshake) + 32]byte
	if _, err := io.ReadFull(r, first[:]); err != nil || string(first[:len(handshake)]) != handshake {
		return
	}
	from, to := mlx5.GID(first[len(handshake):][:16]), mlx5.GID(first[len(handshake)+16:])
	if to != s.gid || c.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for {
		p, err := readPacket(r)
		if err != nil {
			return
		}
		p.Src = from
		s.deliver(p)
	}
}

// readPacket reads one packet with its length.
func readPacket(r io.Reader) (p Packet, err error) {
	var size [4]byte
	if _, err = io.ReadFull(r, size[:]); err != nil {
		return p, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxPacket {
		return p, fmt.Errorf("packet of %d bytes: %w", n, mlx5.ErrFormat)
	}
	b := make([]byte, n)
	if _, err = io.ReadFull(r, b); err != nil {
		return p, err
	}
	return p, p.Parse(b)
}

// Close ends all connections and waits for their goroutines.
func (s *socket) Close() error {
	s.mu.Lock()
	s.shut = true
	for c := range s.taken {
		_ = c.Close()
	}
	s.mu.Unlock()
	close(s.stop)
	err := s.listen.Close()
	s.running.Wait()
	return err
}
