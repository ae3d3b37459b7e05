// SPDX-License-Identifier: MIT

package control

import (
	"fmt"
	"net"

	"mori/core/config"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// greet answers a Hello with the transports and a token for data connections. It returns the
// identity of the sender.
func (s *Server) greet(c *clientConn, body []byte) (who identity.ID, err error) {
	var h message.Hello
	if err := message.Decode(body, &h); err != nil {
		return who, err
	}
	self := s.self
	switch {
	case h.Version != message.Version:
		return who, fmt.Errorf("peer %q uses control version %d, this engine %d: %w",
			h.Key, h.Version, message.Version, errs.ErrInvalid)
	case h.PeerKey != self.Key:
		return who, fmt.Errorf("peer %q connects to engine %q, but this is engine %q: %w", h.Key, h.PeerKey,
			self.Key, errs.ErrNotFound)
	case h.PeerIncarnation != 0 && h.PeerIncarnation != self.Incarnation:
		return who, fmt.Errorf("engine %q was restarted: register its new descriptor: %w", self.Key,
			errs.ErrNotFound)
	}
	ch, err := s.authenticate(c, &h)
	if err != nil {
		return who, err
	}
	who = h.ID()
	if c.token, err = s.tokens.issue(who, s.admits); err != nil {
		return who, err
	}
	w := message.Welcome{Version: message.Version, Key: self.Key, NodeID: self.NodeID,
		Incarnation: self.Incarnation, Token: c.token}
	w.Endpoints, w.Notify = s.host.Offer()
	all := message.Closing(&h, ch, &w)
	w.Proof = self.Secret.Proof(message.RoleWelcome, all...)
	w.Signature = self.Signer.Sign(message.RoleWelcome, all...)
	return who, message.Write(c, message.TypeWelcome, &w)
}

// admits returns why who gets no token, nil if it gets one. An engine gets none if it uses the key
// of this one, or if the host refuses it.
func (s *Server) admits(who identity.ID) error {
	if who.Key == s.self.Key && who != s.self.ID() {
		return fmt.Errorf("engine %q is this engine, so the peer cannot have its name: %w", s.self.Key, errs.ErrNotFound)
	}
	return s.host.Admits(who)
}

// authenticate makes the sender of h sign for its identity. If a secret is set, both sides exchange
// proofs of it.
func (s *Server) authenticate(c net.Conn, h *message.Hello) (*message.Challenge, error) {
	self := s.self
	switch {
	case self.Secret != "" && !h.Auth:
		return nil, fmt.Errorf("engine %q requires %s, and engine %q has none: %w",
			self.Key, config.AuthSecret, h.Key, errs.ErrBadState)
	case len(h.Nonce) != message.NonceLen || len(h.PublicKey) != len(identity.PublicKey{}):
		return nil, fmt.Errorf("hello with a nonce of %d bytes and a public key of %d: %w",
			len(h.Nonce), len(h.PublicKey), errs.ErrInvalid)
	}
	nonce, err := message.NewNonce()
	if err != nil {
		return nil, err
	}
	ch := &message.Challenge{Nonce: nonce, Incarnation: self.Incarnation, PublicKey: self.Signer.Public[:]}
	all := message.Opening(h, ch)
	ch.Proof = self.Secret.Proof(message.RoleServer, all...)
	if err := message.Write(c, message.TypeChallenge, ch); err != nil {
		return nil, err
	}
	kind, body, err := message.Read(c)
	if err != nil {
		return nil, err
	}
	var p message.Proof
	switch {
	case kind == message.TypeFailure:
		return nil, refused(body)
	case kind != message.TypeProof:
		return nil, fmt.Errorf("control message of type %d instead of a proof: %w", kind, errs.ErrInvalid)
	}
	if err := message.Decode(body, &p); err != nil {
		return nil, err
	}
	if !self.Secret.Proves(p.Proof, message.RoleClient, all...) {
		return nil, fmt.Errorf("engines %[1]q and %[3]q have different values of %[2]s: %[4]w", h.Key,
			config.AuthSecret, self.Key, errs.ErrBadState)
	}
	if !h.ID().Public.Verify(p.Signature, message.RoleClient, all...) {
		return nil, fmt.Errorf("the signature does not match engine %q's public key: %w", h.Key,
			errs.ErrBadState)
	}
	return ch, nil
}

// answer answers a request of a client that has completed its handshake.
func (s *Server) answer(c net.Conn, who identity.ID, kind message.Type, body []byte) error {
	switch kind {
	case message.TypeAskRegion:
		return s.describeRegion(c, body)
	case message.TypeDrop:
		return s.dropData(c, body)
	case message.TypeBeat:
		return message.Write(c, message.TypeBeat, &message.Beat{})
	case message.TypeTags:
		return s.takeTags(c, who, body)
	}
	return outOfTurn(kind)
}

func (s *Server) describeRegion(c net.Conn, body []byte) error {
	var q message.AskRegion
	if err := message.Decode(body, &q); err != nil {
		return err
	}
	key := descriptor.RegionKey{ID: q.ID}
	if copy(key.Secret[:], q.Secret); len(q.Secret) != len(key.Secret) {
		return fmt.Errorf("region request with a secret of %d bytes: %w", len(q.Secret),
			errs.ErrInvalid)
	}
	var reply message.Region
	reply.Size, reply.Known = s.host.RegionSize(key)
	return message.Write(c, message.TypeRegion, &reply)
}

// dropData closes the data connection of a token and invalidates the token.
func (s *Server) dropData(c net.Conn, body []byte) error {
	var q message.Drop
	if err := message.Decode(body, &q); err != nil {
		return err
	}
	s.tokens.forget(q.Token)
	return message.Write(c, message.TypeDropped, &message.Dropped{Found: s.host.Drop(q.Token)})
}

func (s *Server) takeTags(c net.Conn, who identity.ID, body []byte) error {
	var q message.Tags
	if err := message.Decode(body, &q); err != nil {
		return err
	}
	all, err := message.UnpackTags(q.Packed)
	if err != nil {
		return err
	}
	return message.Write(c, message.TypeTagged, &message.Tagged{Taken: s.host.TakeTags(who, all)})
}
