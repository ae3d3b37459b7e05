// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"mori/core/config"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// PortNone is the port of an engine that peers cannot reach, by convention of the public API.
const PortNone = 1

// attempt connects and does the handshake. If it succeeds, the connection stays open for requests.
// It needs c.mu held.
func (c *Client) attempt(ctx context.Context) (*message.Welcome, error) {
	c.disconnect()
	conn, addr, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if c.self.TLS != nil {
		secure := tls.Client(conn, c.self.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			c.self.Log.Warn("control plane: peer refused", "peer", c.peer.Key, "reason", err)
			return nil, fmt.Errorf("TLS handshake with the control plane of %q at %s: %w (%w)",
				c.peer.Key, addr, err, errs.ErrUnreachable)
		}
		conn = secure
	}
	c.conn = conn
	w, err := c.handshake(ctx)
	if err != nil {
		c.disconnect()
		return nil, fmt.Errorf("handshake with %q at %s: %w", c.peer.Key, addr, err)
	}
	if w.Version != message.Version {
		c.disconnect()
		return nil, fmt.Errorf("handshake with %q at %s: control version %d: %w", c.peer.Key, addr,
			w.Version, errs.ErrInvalid)
	}
	return w, nil
}

// dial connects to the peer's control plane on the network address of its descriptor, or on the
// local socket if the peer is on this host.
func (c *Client) dial(ctx context.Context) (conn net.Conn, addr string, err error) {
	d := c.peer
	addr, refusal := Addr(d)
	local := c.near.SameNode && d.Incarnation != 0
	if local && (refusal != nil || c.near.First()) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", localAddr(d.Incarnation))
		switch {
		case err == nil:
			return conn, localAddr(d.Incarnation), nil
		case refusal != nil:
			return nil, "", fmt.Errorf("engine %q is gone from this host, or has no backend that peers can reach: %w (%w)",
				d.Key, err, errs.ErrBadState)
		}
		local = false
	}
	if refusal != nil {
		return nil, "", refusal
	}
	conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		return conn, addr, nil
	}
	if local {
		if conn, err := new(net.Dialer).DialContext(ctx, "unix", localAddr(d.Incarnation)); err == nil {
			return conn, localAddr(d.Incarnation), nil
		}
	}
	return nil, "", fmt.Errorf("connect to the control plane of %q at %s: %w (%w)", d.Key, addr,
		err, errs.ErrUnreachable)
}

// handshake states this engine's identity and makes the peer prove that it is the engine of the
// descriptor. If a secret is set, both prove that they have it.
func (c *Client) handshake(ctx context.Context) (*message.Welcome, error) {
	self, d := c.self, c.peer
	nonce, err := message.NewNonce()
	if err != nil {
		return nil, err
	}
	h := message.Hello{Version: message.Version, Key: self.Key, NodeID: self.NodeID,
		Incarnation: self.Incarnation, PeerKey: d.Key, PeerIncarnation: d.Incarnation, Nonce: nonce,
		Auth: self.Secret != "", PublicKey: self.Signer.Public[:]}
	var ch message.Challenge
	if err := c.ask(ctx, message.TypeHello, &h, message.TypeChallenge, &ch); err != nil {
		return nil, err
	}
	there := identity.ID{Key: d.Key, Incarnation: ch.Incarnation}
	copy(there.Public[:], ch.PublicKey)
	opening := message.Opening(&h, &ch)
	switch {
	case self.Secret != "" && len(ch.Proof) == 0:
		return nil, c.refuse(fmt.Errorf("engine %q sent no proof: it has no %s, and engine %q has one: %w",
			d.Key, config.AuthSecret, self.Key, ErrTurnedAway))
	case !self.Secret.Proves(ch.Proof, message.RoleServer, opening...):
		return nil, c.refuse(fmt.Errorf("engines %[1]q and %[3]q have different values of %[2]s: %[4]w",
			d.Key, config.AuthSecret, self.Key, ErrTurnedAway))
	case len(ch.PublicKey) != len(there.Public) || len(ch.Nonce) != message.NonceLen ||
		d.Incarnation != 0 && !there.Is(d.ID()):
		return nil, c.refuse(fmt.Errorf("the answering process is not the engine %q of the descriptor: %w",
			d.Key, ErrTurnedAway))
	}
	var w message.Welcome
	reply := message.Proof{Proof: self.Secret.Proof(message.RoleClient, opening...),
		Signature: self.Signer.Sign(message.RoleClient, opening...)}
	if err := c.ask(ctx, message.TypeProof, &reply, message.TypeWelcome, &w); err != nil {
		return nil, err
	}
	all := message.Closing(&h, &ch, &w)
	if w.Key != d.Key || w.Incarnation != ch.Incarnation || len(w.Token) != message.TokenLen ||
		!self.Secret.Proves(w.Proof, message.RoleWelcome, all...) ||
		!there.Public.Verify(w.Signature, message.RoleWelcome, all...) {
		return nil, c.refuse(fmt.Errorf("the welcome message of engine %q was altered in transit: %w",
			d.Key, ErrTurnedAway))
	}
	return &w, nil
}

// refuse sends the reason to the peer, so that both logs have it, and returns it.
func (c *Client) refuse(err error) error {
	c.self.Log.Warn("control plane: peer refused", "peer", c.peer.Key, "reason", err)
	_ = message.Write(c.conn, message.TypeFailure, &message.Failure{Text: err.Error()}) // best effort
	return err
}

// Addr returns the network address of the control server of d. An engine without a host is on this
// machine.
func Addr(d descriptor.Engine) (string, error) {
	if d.Port <= PortNone || d.Port > 65535 {
		return "", fmt.Errorf("engine %q has control port %d: it has no backend that peers can reach: %w",
			d.Key, d.Port, errs.ErrBadState)
	}
	host := d.Host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(d.Port)), nil
}
