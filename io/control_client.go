// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"mori/core/admission"
	"mori/core/config"
)

// A controlClient asks one peer's control server. It connects when first needed, keeps the connection for the next
// question, and connects again if that turns out to be dead. Safe for concurrent use: one question at a time.
type controlClient struct {
	peer *peer

	mu   ctxMutex
	conn net.Conn
	last time.Time
}

// errTurnedAway is an answer of the control plane that no later attempt will change.
var errTurnedAway = fmt.Errorf("the peer's control plane turns us away: %w", ErrUnreachable)

// greet introduces us and learns the peer's transports.
func (c *controlClient) greet(ctx context.Context) (*welcome, error) {
	if err := c.mu.lock(ctx); err != nil {
		return nil, c.busy(err)
	}
	defer c.mu.unlock()
	return c.connect(ctx)
}

// busy is the error of a question for which there was no time, because an earlier one has no answer yet.
func (c *controlClient) busy(err error) error {
	return fmt.Errorf("the control plane of %q has not answered an earlier question: %w (%w)", c.peer.desc.Key, err, ErrUnreachable)
}

// maxEvictions is how often a client tries again whose peer closes the connection without a word.
const maxEvictions = 6

// connect is attempt, and tries again with back-off if the peer closes the connection before the handshake is complete: a peer under a
// flood of connections does so with the oldest. It needs c.mu held.
func (c *controlClient) connect(ctx context.Context) (w *welcome, err error) {
	var pause admission.Backoff
	for range maxEvictions {
		if w, err = c.attempt(ctx); !evicted(err) || !pause.Wait(ctx) {
			break
		}
	}
	return w, err
}

// evicted reports whether the peer closed the connection without an answer, or bytes were altered on
// their way: another attempt may succeed.
func evicted(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, errUnreadable)
}

// attempt needs c.mu held. A successful hello leaves the connection open for questions.
func (c *controlClient) attempt(ctx context.Context) (*welcome, error) {
	c.hangUp()
	d := c.peer.desc
	conn, addr, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if e := c.peer.engine; e.tls != nil {
		secure := tls.Client(conn, e.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			e.log.Warn("control plane: peer refused", "peer", d.Key, "reason", err)
			return nil, fmt.Errorf("TLS handshake with the control plane of %q at %s: %w (%w)", d.Key, addr, err, ErrUnreachable)
		}
		conn = secure
	}
	c.conn = conn
	e := c.peer.engine
	w, err := c.hello(ctx, e)
	if err != nil {
		c.hangUp()
		return nil, fmt.Errorf("greet %q at %s: %w", d.Key, addr, err)
	}
	if w.Version != controlVersion {
		c.hangUp()
		return nil, fmt.Errorf("greet %q at %s: control version %d: %w", d.Key, addr, w.Version, ErrInvalid)
	}
	return w, nil
}

// dial finds the peer's control plane: on the network that its descriptor names, or on the socket that engines without a network have, if it is
// on this host. An engine that moves GPU memory within the host only looks there first.
func (c *controlClient) dial(ctx context.Context) (conn net.Conn, addr string, err error) {
	d := c.peer.desc
	addr, refusal := controlAddr(d)
	local := c.peer.sameNode() && d.Incarnation != 0
	if local && (refusal != nil || c.peer.engine.has(BackendXGMI)) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", localControl(d.Incarnation))
		switch {
		case err == nil:
			return conn, localControl(d.Incarnation), nil
		case refusal != nil:
			return nil, "", fmt.Errorf("engine %q is gone from this host, or has no backend that peers can reach: %w (%w)", d.Key, err, ErrBadState)
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
		if conn, err := new(net.Dialer).DialContext(ctx, "unix", localControl(d.Incarnation)); err == nil {
			return conn, localControl(d.Incarnation), nil
		}
	}
	return nil, "", fmt.Errorf("connect to the control plane of %q at %s: %w (%w)", d.Key, addr, err, ErrUnreachable)
}

// hello introduces us and has the peer prove that it is the one of the descriptor; if there is a secret, both prove that they have it.
func (c *controlClient) hello(ctx context.Context, e *Engine) (*welcome, error) {
	d := c.peer.desc
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	h := hello{Version: controlVersion, Key: e.key, NodeID: e.nodeID, Incarnation: e.incarnation, PeerKey: d.Key, PeerIncarnation: d.Incarnation,
		Nonce: nonce, Auth: e.secret != "", PublicKey: e.signer.public[:]}
	var ch challenge
	if err := c.ask(ctx, controlHello, &h, controlChallenge, &ch); err != nil {
		return nil, err
	}
	there := identity{key: d.Key, incarnation: ch.Incarnation}
	copy(there.public[:], ch.PublicKey)
	switch {
	case e.secret != "" && len(ch.Proof) == 0:
		return nil, c.refuse(fmt.Errorf("engine %q gives no proof: it has no %s, and engine %q has: %w", d.Key, config.AuthSecret, e.key, errTurnedAway))
	case !e.secret.proves(ch.Proof, roleServer, opening(&h, &ch)...):
		return nil, c.refuse(fmt.Errorf("engine %q has another %s than engine %q: %w", d.Key, config.AuthSecret, e.key, errTurnedAway))
	case len(ch.PublicKey) != len(there.public) || len(ch.Nonce) != nonceLen || d.Incarnation != 0 && !there.is(d.identity()):
		return nil, c.refuse(fmt.Errorf("here answers not the engine %q of the descriptor: %w", d.Key, errTurnedAway))
	}
	var w welcome
	reply := proofReply{Proof: e.secret.proof(roleClient, opening(&h, &ch)...), Signature: e.signer.sign(roleClient, opening(&h, &ch)...)}
	if err := c.ask(ctx, controlProof, &reply, controlWelcome, &w); err != nil {
		return nil, err
	}
	all := closing(&h, &ch, &w)
	if w.Key != d.Key || w.Incarnation != ch.Incarnation || len(w.Token) != tokenLen || !e.secret.proves(w.Proof, roleWelcome, all...) ||
		!there.public.verify(w.Signature, roleWelcome, all...) {
		return nil, c.refuse(fmt.Errorf("the welcome of engine %q was altered on its way: %w", d.Key, errTurnedAway))
	}
	return &w, nil
}

// refuse tells the peer, so that both logs have the reason, and returns it.
func (c *controlClient) refuse(err error) error {
	c.peer.engine.log.Warn("control plane: peer refused", "peer", c.peer.desc.Key, "reason", err)
	_ = writeControl(c.conn, controlError, &controlFailure{Text: err.Error()}) // a courtesy
	return err
}

// region asks for the size of a region.
func (c *controlClient) region(ctx context.Context, d MemoryDesc) (known bool, size uint64, err error) {
	if err := c.mu.lock(ctx); err != nil {
		return false, 0, c.busy(err)
	}
	defer c.mu.unlock()
	q := askRegion{ID: d.ID, Secret: d.Secret[:]}
	var r regionReply
	err = c.askAgain(ctx, controlAskRegion, &q, controlRegion, &r)
	return r.Known, r.Size, err
}

// drop has the peer close the data connection of a token. When it returns nil, no byte of that can land there any more.
func (c *controlClient) drop(ctx context.Context, token []byte) error {
	if err := c.mu.lock(ctx); err != nil {
		return c.busy(err)
	}
	defer c.mu.unlock()
	var r dropReply
	return c.askAgain(ctx, controlDrop, &dropLink{Token: token}, controlDropped, &r)
}

// tell sends tags of transfers.
func (c *controlClient) tell(ctx context.Context, tags []tagged) error {
	if err := c.mu.lock(ctx); err != nil {
		return c.busy(err)
	}
	defer c.mu.unlock()
	var r tagsReply
	return c.askAgain(ctx, controlTags, &tagsSent{Packed: packTags(tags)}, controlTagged, &r)
}

// beat asks for a sign of life.
func (c *controlClient) beat(ctx context.Context) error {
	if err := c.mu.lock(ctx); err != nil {
		return c.busy(err)
	}
	defer c.mu.unlock()
	return c.askAgain(ctx, controlBeat, &heartbeat{}, controlBeat, &heartbeat{})
}

// askAgain asks over the open connection, and over a new one if that is dead. It needs c.mu held.
func (c *controlClient) askAgain(ctx context.Context, kind controlType, q any, want controlType, answer any) error {
	if c.conn != nil && time.Since(c.last) < controlIdle/2 {
		if err := c.ask(ctx, kind, q, want, answer); err == nil {
			return nil
		}
	}
	if _, err := c.connect(ctx); err != nil {
		return err
	}
	if err := c.ask(ctx, kind, q, want, answer); err != nil {
		c.hangUp() // a late answer must not be taken for that to the next question
		return fmt.Errorf("ask the control plane of %q: %w", c.peer.desc.Key, err)
	}
	return nil
}

// ask sends one request and decodes its answer. It needs c.mu held.
func (c *controlClient) ask(ctx context.Context, kind controlType, q any, want controlType, answer any) error {
	limit, ok := ctx.Deadline()
	if !ok {
		limit = time.Time{}
	}
	if err := c.conn.SetDeadline(limit); err != nil {
		return err
	}
	conn := c.conn // the function below may run when c has hung up
	unhook := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer unhook()
	if err := writeControl(c.conn, kind, q); err != nil {
		return err
	}
	got, body, err := readControl(c.conn)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if got == controlError {
		var f controlFailure
		if err := decodeControl(body, &f); err != nil {
			return err
		}
		return fmt.Errorf("refused: %s: %w", f.Text, errTurnedAway)
	}
	if got != want {
		return fmt.Errorf("answer of type %d in place of %d: %w", got, want, ErrInvalid)
	}
	c.last = time.Now()
	return decodeControl(body, answer)
}

func (c *controlClient) close() {
	_ = c.mu.lock(context.Background()) // who has it ends with the registration of the peer
	defer c.mu.unlock()
	c.hangUp()
}

// hangUp needs c.mu held.
func (c *controlClient) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// controlAddr is where to find d's control server; an engine without a host is on this machine.
func controlAddr(d EngineDesc) (string, error) {
	if d.Port <= portNone || d.Port > 65535 {
		return "", fmt.Errorf("engine %q has control port %d: it has no backend that peers can reach: %w", d.Key, d.Port, ErrBadState)
	}
	host := d.Host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(d.Port)), nil
}
