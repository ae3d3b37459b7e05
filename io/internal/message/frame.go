// SPDX-License-Identifier: MIT

package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"mori/core/decode"
	"mori/core/fabric"
	"mori/io/internal/errs"
)

const (
	// MaxBytes is the maximum size of a message's body, in bytes.
	MaxBytes = 64 << 10

	// HeaderBytes is the size of the header. Its last four bytes are the checksum.
	HeaderBytes = 9
)

// Write sends one message with one call of w.Write.
func Write(w io.Writer, kind Type, body any) error {
	b, err := msgpack.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode control message %d: %w", kind, err)
	}
	if len(b) > MaxBytes {
		return fmt.Errorf("control message %d of %d bytes, want at most %d: %w", kind, len(b),
			MaxBytes, errs.ErrInvalid)
	}
	_, err = w.Write(Frame(kind, b))
	return err
}

// Frame returns a message with an encoded body.
func Frame(kind Type, body []byte) []byte {
	out := make([]byte, HeaderBytes, HeaderBytes+len(body))
	out[0] = byte(kind)
	binary.BigEndian.PutUint32(out[1:], uint32(len(body)))
	binary.BigEndian.PutUint32(out[5:], checksum(out, body))
	return append(out, body...)
}

// ErrUnreadable means that bytes are not a message, or were altered in transit. A receiver does not
// answer: a client without an answer retries.
var ErrUnreadable = errors.New("unreadable control message")

// Read receives one message. It does not trust the sender: it checks the length before it
// allocates.
func Read(r io.Reader) (Type, []byte, error) {
	var head [HeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if head[0] < byte(TypeHello) || head[0] > byte(TypeBeat) || n > MaxBytes {
		return 0, nil, fmt.Errorf("%w: type %d and %d bytes: %w", ErrUnreadable, head[0], n,
			errs.ErrInvalid)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, fmt.Errorf("control message of type %d cut short: %w", head[0], err)
	}
	if sum := binary.BigEndian.Uint32(head[5:]); sum != checksum(head[:], body) {
		return 0, nil, fmt.Errorf("%w: of type %d and %d bytes, altered in transit: %w",
			ErrUnreadable, head[0], n, fabric.ErrCRC)
	}
	return Type(head[0]), body, nil
}

// checksum is the crc32c of a message except the four bytes that hold it.
func checksum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:5], castagnoli), castagnoli, body)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Decode decodes a body into to. It does not trust the sender: it allocates no more than the length
// of the body.
func Decode(body []byte, to any) error {
	if err := decode.Unmarshal(body, to); err != nil {
		return fmt.Errorf("decode control message: %w: %w", err, errs.ErrInvalid)
	}
	return nil
}
