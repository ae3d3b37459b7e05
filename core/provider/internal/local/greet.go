// SPDX-License-Identifier: MIT

package local

import (
	"fmt"
	"io"
	"net"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/memfd"
	"mori/core/internal/sys/sock"
)

// Send makes size bytes of memory, hands it to the peer beside a hello of fixed length, and returns
// its mapping. write fills in what the handshake says of the memory, which is mapped at the
// address, and returns the hello.
func Send(conn *net.UnixConn, name string, size int, write func(mem []byte) ([]byte, error)) (mem []byte, err error) {
	fd, err := memfd.New(name, size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sys.CloseFD(fd) }() // the peer has its own by then
	if mem, err = memfd.Map(fd, size); err != nil {
		return nil, err
	}
	hello, err := write(mem)
	if err == nil {
		if _, _, err = conn.WriteMsgUnix(hello, sock.Rights(fd), nil); err != nil {
			err = fmt.Errorf("send handshake: %w", err)
		}
	}
	if err != nil {
		_ = sys.Free(mem)
		return nil, err
	}
	return mem, nil
}

// Receive reads exactly n bytes of the peer's hello, since the stream's bytes follow, lets parse
// have a look at them, and maps the size bytes of memory that came beside it.
func Receive(conn *net.UnixConn, n, size int, parse func(hello []byte) error) ([]byte, error) {
	mem := -1
	defer func() {
		if mem >= 0 {
			_ = sys.CloseFD(mem)
		}
	}()
	b, oob := make([]byte, n), make([]byte, sock.RightsLen)
	for got := 0; got < n; {
		m, oobn, _, _, err := conn.ReadMsgUnix(b[got:], oob)
		if err == nil && m == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("receive handshake: %w", err)
		}
		got += m
		for _, fd := range sock.ParseRights(oob[:oobn]) {
			if mem >= 0 {
				_ = sys.CloseFD(mem)
			}
			mem = fd
		}
	}
	if err := parse(b); err != nil {
		return nil, err
	}
	if mem < 0 {
		return nil, fmt.Errorf("handshake without shared memory: %w", fabric.ErrProtocol)
	}
	return memfd.Map(mem, size)
}
