// SPDX-License-Identifier: MIT

package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"

	"mori/core/fabric"
)

// Sockets makes abstract unix sockets, "@name". They have no file, and disappear with the last
// process that holds them. It is the part of a handshake.Transport that transports over such
// sockets share.
type Sockets struct{}

// Listen listens at "@name", or at a random name if at is empty.
func (Sockets) Listen(_ context.Context, at fabric.Addr) (net.Listener, error) {
	if at == "" {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("random name: %w", err)
		}
		at = fabric.Addr("@mori-" + hex.EncodeToString(b[:]))
	}
	name, err := socketName(at)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return net.ListenUnix("unix", name)
}

// Dial connects to "@name".
func (Sockets) Dial(ctx context.Context, to fabric.Addr) (net.Conn, error) {
	name, err := socketName(to)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", name.Name)
}

// Addr returns the name of a socket. A client's socket has none.
func (Sockets) Addr(a net.Addr) fabric.Addr { return fabric.Addr(a.String()) }

// CheckAddr returns an error if at cannot be a name.
func CheckAddr(at fabric.Addr) error {
	_, err := socketName(at)
	return err
}

func socketName(at fabric.Addr) (*net.UnixAddr, error) {
	if len(at) < 2 || len(at) > 107 || at[0] != '@' {
		return nil, fmt.Errorf("address %q is not @ and up to 106 characters: %w", at, fabric.ErrInvalid)
	}
	return &net.UnixAddr{Name: string(at), Net: "unix"}, nil
}
