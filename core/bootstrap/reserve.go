// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/bootstrap/iface"
)

const (
	firstPort, lastPort = 10000, 60000
	portTries           = 20
	reserveFor          = 10 * time.Minute
)

// NewUniqueID creates the id of a new group whose rank 0 will run on this host, as any process of
// this user. It needs only the network. The port is reserved for rank 0 until this process joins
// the group, or for ten minutes.
func NewUniqueID() (UniqueID, error) {
	host, err := iface.HostAddr()
	if err != nil {
		return UniqueID{}, fmt.Errorf("unique id: %w", err)
	}
	var secret [secretSize]byte
	rand.Read(secret[:]) // never fails
	var last error
	for range portTries {
		n, err := rand.Int(rand.Reader, big.NewInt(lastPort-firstPort+1))
		if err != nil {
			return UniqueID{}, fmt.Errorf("unique id: %w", err)
		}
		addr := netip.AddrPortFrom(host, uint16(firstPort+n.Int64()))
		fd, err := reservePort(addr)
		if err == nil {
			id := newID(secret, addr)
			reservations.keep(id, fd)
			return id, nil
		}
		if last = err; !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return UniqueID{}, fmt.Errorf("unique id: a free port of %v: %w", host, last)
}

// reservePort returns a socket that is bound to addr and does not listen: connections are refused,
// and nobody can bind there but with SO_REUSEPORT, as the same user. It binds without that option,
// which finds every other socket at this port, and sets it then.
func reservePort(addr netip.AddrPort) (fd int, err error) {
	domain := unix.AF_INET6
	if addr.Addr().Is4() {
		domain = unix.AF_INET
	}
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	if addr.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	if err = unix.Bind(fd, sa); err != nil {
		err = fmt.Errorf("bind %v: %w", addr, err)
	} else if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		err = fmt.Errorf("share %v with rank 0: %w", addr, err)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// reservations holds the ports that this process reserves.
var reservations reserved

type reserved struct {
	mu   sync.Mutex
	kept map[UniqueID]*reservation
}

type reservation struct {
	fd    int
	timer *time.Timer
}

func (r *reserved) keep(id UniqueID, fd int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil {
		r.kept = map[UniqueID]*reservation{}
	}
	r.kept[id] = &reservation{fd: fd, timer: time.AfterFunc(reserveFor, func() { r.release(id) })}
}

// release frees the port of id, if this process reserves it.
func (r *reserved) release(id UniqueID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kept[id]; k != nil {
		k.timer.Stop()
		_ = unix.Close(k.fd)
		delete(r.kept, id)
	}
}

// listenReserved listens at the address of an id. The port is shared with the process that reserved
// it, and would be shared with a second rank 0 too. A name in the abstract socket namespace, which
// nobody can guess, lets only one listen.
func listenReserved(ctx context.Context, id UniqueID) (net.Listener, error) {
	name := "@mori-bootstrap-" + id.name()
	one, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen at %v: another rank 0 uses the same id: %w", id.addr(), ErrMismatch)
	}
	if err != nil {
		return nil, fmt.Errorf("claim to be rank 0: %w", err)
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
			return e
		}
		return err
	}}
	l, err := config.Listen(ctx, "tcp", id.addr().String())
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = fmt.Errorf("%w: rank 0 must run on the host where the id was created", err)
	}
	if err != nil {
		return nil, errors.Join(err, one.Close())
	}
	reservations.release(id)
	return &onlyListener{Listener: l, one: one}, nil
}

// An onlyListener ends its claim when it closes.
type onlyListener struct {
	net.Listener
	one net.Listener
}

func (l *onlyListener) Close() error { return errors.Join(l.Listener.Close(), l.one.Close()) }
