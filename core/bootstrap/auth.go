// SPDX-License-Identifier: MIT

package bootstrap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
)

// The handshake on each connection. Both sides prove that they have the group's secret before they
// trust anything else. All messages have a fixed length, so a stranger can make a process hold only
// a few hundred bytes.
//
//	dialer    magic u64, version u32, nonce [32]
//	listener  magic u64, version u32, nonce [32], proof [32]
//	dialer    ticket (who it is), proof [32]
//
// A proof is an HMAC-SHA256, keyed by the secret, over the sender's role and all earlier messages.
// Frames follow, which are neither authenticated nor encrypted.

const (
	secretSize = 32
	proofSize  = sha256.Size
	nonceSize  = 32

	magic       = 0x6d6f72692d627331 // "mori-bs1"
	wireVersion = 1
	openingSize = 8 + 4 + nonceSize
	ticketSize  = 1 + 4 + 4 + 2 + identitySize
)

// The purpose of a connection.
const (
	forRoot   = 1 + iota // a rank joins
	forParent            // a rank that has joined connects to its parent in the tree
)

// A ticket says which rank dials, and for what purpose.
type ticket struct {
	use        uint8
	rank, size uint32
	port       uint16 // port at which it listens for its children in the tree, 0: it has none
	who        identity
}

func (t ticket) append(b []byte) []byte {
	b = append(b, t.use)
	b = binary.LittleEndian.AppendUint32(b, t.rank)
	b = binary.LittleEndian.AppendUint32(b, t.size)
	b = binary.LittleEndian.AppendUint16(b, t.port)
	return t.who.append(b)
}

// parseTicket parses ticketSize bytes.
func parseTicket(b []byte) ticket {
	return ticket{
		use: b[0], rank: binary.LittleEndian.Uint32(b[1:]), size: binary.LittleEndian.Uint32(b[5:]), port: binary.LittleEndian.Uint16(b[9:]),
		who: parseIdentity(b[11:]),
	}
}

func opening() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, openingSize), magic)
	b = binary.LittleEndian.AppendUint32(b, wireVersion)
	b = b[:openingSize]
	rand.Read(b[12:]) // never fails
	return b
}

// checkOpening returns an error that wraps errStranger if b is not of this protocol.
func checkOpening(b []byte) error {
	if m := binary.LittleEndian.Uint64(b); m != magic {
		return fmt.Errorf("%w: it uses another protocol (%#x)", errStranger, m)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != wireVersion {
		return fmt.Errorf("%w: protocol version %d, want %d", errStranger, v, wireVersion)
	}
	return nil
}

// prove returns the proof of a role over the earlier messages.
func prove(secret [secretSize]byte, role string, said ...[]byte) [proofSize]byte {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte(role))
	for _, b := range said {
		h.Write(b)
	}
	return [proofSize]byte(h.Sum(nil))
}

// dialHandshake is the dialing side. c has a deadline.
func dialHandshake(c io.ReadWriter, secret [secretSize]byte, t ticket) error {
	mine := opening()
	if _, err := c.Write(mine); err != nil {
		return err
	}
	theirs := make([]byte, openingSize+proofSize)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return fmt.Errorf("%w: no reply: %w", errStranger, err)
	}
	theirs, proof := theirs[:openingSize], theirs[openingSize:]
	if err := checkOpening(theirs); err != nil {
		return err
	}
	if want := prove(secret, "listener", mine, theirs); !hmac.Equal(proof, want[:]) {
		return fmt.Errorf("%w: its secret is different", errStranger)
	}
	said := t.append(nil)
	own := prove(secret, "dialer", mine, theirs, said)
	_, err := c.Write(append(said, own[:]...))
	return err
}

// acceptHandshake is the listening side.
func acceptHandshake(c io.ReadWriter, secret [secretSize]byte) (ticket, error) {
	theirs := make([]byte, openingSize)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return ticket{}, err
	}
	if err := checkOpening(theirs); err != nil {
		return ticket{}, err
	}
	mine := opening()
	own := prove(secret, "listener", theirs, mine)
	if _, err := c.Write(append(mine[:openingSize:openingSize], own[:]...)); err != nil {
		return ticket{}, err
	}
	said := make([]byte, ticketSize+proofSize)
	if _, err := io.ReadFull(c, said); err != nil {
		return ticket{}, err
	}
	said, proof := said[:ticketSize], said[ticketSize:]
	if want := prove(secret, "dialer", theirs, mine, said); !hmac.Equal(proof, want[:]) {
		return ticket{}, fmt.Errorf("%w: its secret is different", errStranger)
	}
	return parseTicket(said), nil
}
