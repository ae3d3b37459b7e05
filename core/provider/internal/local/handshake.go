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

// SendMemory makes size bytes of memory and returns its mapping. It sends the memory's descriptor
// to the peer with a handshake of fixed length. write gets the mapping and returns that handshake.
func SendMemory(conn *net.UnixConn, name string, size int, write func(mem []byte) ([]byte, error)) (mem []byte, err error) {
	fd, err := memfd.New(name, size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sys.CloseFD(fd) }() // the peer has its own descriptor by then
	if mem, err = memfd.Map(fd, size); err != nil {
		return nil, err
	}
	handshake, err := write(mem)
	if err == nil {
		if _, _, err = conn.WriteMsgUnix(handshake, sock.Rights(fd), nil); err != nil {
			err = fmt.Errorf("send handshake: %w", err)
		}
	}
	if err != nil {
		_ = sys.Free(mem)
		return nil, err
	}
	return mem, nil
}

// ReceiveMemory reads the n bytes of the peer's handshake and no more, because bytes of the stream
// follow. If parse accepts them, it maps the size bytes of memory whose descriptor came with them.
func ReceiveMemory(conn *net.UnixConn, n, size int, parse func(handshake []byte) error) ([]byte, error) {
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
