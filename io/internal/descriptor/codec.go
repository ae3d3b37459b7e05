// SPDX-License-Identifier: MIT

package descriptor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"mori/core/decode"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
)

// Descriptors are encoded as the msgpack arrays that existing users of mori exchange: 6 elements
// for an engine, 15 for a region. mori appends one more element, which other decoders ignore. It is
// a bin of ownMagic, the incarnation (8 bytes, big endian), and then an engine's public key (32
// bytes) or a region's secret (16 bytes).
//
//   - In a shorter array, the missing fields keep their defaults.
//   - Further elements and trailing bytes are ignored.
//   - bin is accepted for str.

const (
	engineDescLen = 6
	memoryDescLen = 15

	// ownMagic starts mori's element. Its last byte is the version. Later versions may only append.
	ownMagic = "mori\x01"

	// maxDescBytes limits what unpacking may allocate.
	maxDescBytes = 64 << 10
)

// Pack encodes d. Without an incarnation and a public key it returns the plain 6-element array.
func (d Engine) Pack() []byte {
	w := newPacker()
	own := d.Incarnation != 0 || d.PublicKey != (identity.PublicKey{})
	w.array(engineDescLen, own)
	w.str(d.Key, d.NodeID, d.Hostname, d.Host)
	w.int(int64(d.Port), int64(d.PID))
	if own {
		w.own(d.Incarnation, d.PublicKey[:])
	}
	return w.buf.Bytes()
}

// UnpackEngine decodes what Pack or another implementation of the format wrote.
func UnpackEngine(b []byte) (Engine, error) {
	var d Engine
	r, err := newUnpacker("engine", b)
	if err != nil {
		return d, err
	}
	r.key(&d.Key)
	r.str(&d.NodeID, &d.Hostname, &d.Host)
	r.int(&d.Port, 0, math.MaxUint16)
	r.int(&d.PID, math.MinInt32, math.MaxInt32)
	r.own(&d.Incarnation, d.PublicKey[:])
	if err := r.Err(); err != nil {
		return Engine{}, fmt.Errorf("unpack engine descriptor: %w: %w", err, errs.ErrInvalid)
	}
	return d, nil
}

// Pack encodes d. Without a secret it returns the plain 15-element array.
func (d Memory) Pack() []byte {
	w := newPacker()
	own := d.Incarnation != 0 || d.Secret != ([16]byte{})
	w.array(memoryDescLen, own)
	w.str(d.EngineKey)
	w.uint(uint64(d.ID))
	w.int(int64(d.DeviceID))
	w.str(d.DeviceBusID)
	w.uint(d.Data, d.Size, uint64(d.Loc))
	w.bin(d.IPCHandle[:])
	w.int(int64(d.NUMANode))
	w.uint(d.IPCOffset)
	w.bin(d.FabricHandle[:])
	w.int(int64(d.VPodID))
	w.str(d.VPodPPodID)
	w.uint(d.FabricOffset, d.FabricAllocSize)
	if own {
		w.own(d.Incarnation, d.Secret[:])
	}
	return w.buf.Bytes()
}

// UnpackMemory decodes what Pack or another implementation of the format wrote.
func UnpackMemory(b []byte) (Memory, error) {
	d := NewMemory()
	r, err := newUnpacker("memory", b)
	if err != nil {
		return d, err
	}
	var id, loc uint64
	r.key(&d.EngineKey)
	r.uint(&id)
	r.int(&d.DeviceID, math.MinInt32, math.MaxInt32)
	r.str(&d.DeviceBusID)
	r.uint(&d.Data, &d.Size, &loc)
	r.bin(d.IPCHandle[:])
	r.int(&d.NUMANode, math.MinInt32, math.MaxInt32)
	r.uint(&d.IPCOffset)
	r.bin(d.FabricHandle[:])
	r.int(&d.VPodID, math.MinInt32, math.MaxInt32)
	r.str(&d.VPodPPodID)
	r.uint(&d.FabricOffset, &d.FabricAllocSize)
	r.own(&d.Incarnation, d.Secret[:])
	if id > math.MaxUint32 || loc > uint64(LocGPU) {
		r.Fail("id %d or location %d is out of range", id, loc)
	}
	if err := r.Err(); err != nil {
		return NewMemory(), fmt.Errorf("unpack memory descriptor: %w: %w", err, errs.ErrInvalid)
	}
	d.ID, d.Loc = uint32(id), Location(loc)
	return d, nil
}

// A packer appends elements. Writes to a bytes.Buffer do not fail.
type packer struct {
	buf *bytes.Buffer
	enc *msgpack.Encoder
}

func newPacker() packer {
	buf := new(bytes.Buffer)
	enc := msgpack.NewEncoder(buf)
	enc.UseCompactInts(true)
	return packer{buf, enc}
}

// array starts an array of n public elements, plus mori's if own is set.
func (w packer) array(n int, own bool) {
	if own {
		n++
	}
	_ = w.enc.EncodeArrayLen(n)
}

// own appends mori's element.
func (w packer) own(incarnation uint64, secret []byte) {
	b := binary.BigEndian.AppendUint64([]byte(ownMagic), incarnation)
	w.bin(append(b, secret...))
}

func (w packer) str(all ...string) {
	for _, s := range all {
		_ = w.enc.EncodeString(s)
	}
}

func (w packer) int(all ...int64) {
	for _, v := range all {
		_ = w.enc.EncodeInt(v)
	}
}

func (w packer) uint(all ...uint64) {
	for _, v := range all {
		_ = w.enc.EncodeUint(v)
	}
}

func (w packer) bin(b []byte) { _ = w.enc.EncodeBytes(b) }

// An unpacker reads elements until the array ends. Reads beyond the end leave their targets
// unchanged. The first error of the reader is kept.
type unpacker struct {
	*decode.Reader
	left int
}

func newUnpacker(what string, b []byte) (*unpacker, error) {
	if len(b) == 0 || len(b) > maxDescBytes {
		return nil, fmt.Errorf("unpack %s descriptor of %d bytes, want 1 to %d: %w",
			what, len(b), maxDescBytes, errs.ErrInvalid)
	}
	r := &unpacker{Reader: decode.NewReader(b)}
	if r.left = r.Array(); r.left < 1 {
		return nil, fmt.Errorf("unpack %s descriptor of %d bytes: not an array with elements (%v): %w",
			what, len(b), r.Err(), errs.ErrInvalid)
	}
	return r, nil
}

// next reports whether the array has another element.
func (r *unpacker) next() bool {
	if r.Err() != nil || r.left == 0 {
		return false
	}
	r.left--
	return true
}

func (r *unpacker) str(all ...*string) {
	for _, to := range all {
		if r.next() {
			*to = r.Text(maxDescBytes)
		}
	}
}

// key reads the key of an engine.
func (r *unpacker) key(to *string) {
	if r.next() {
		*to = r.Text(MaxKey)
	}
}

// int reads a number between low and high.
func (r *unpacker) int(to *int, low, high int64) {
	if !r.next() {
		return
	}
	n := r.Int()
	if n < low || n > high {
		r.Fail("number %d, want %d to %d", n, low, high)
		return
	}
	*to = int(n)
}

func (r *unpacker) uint(all ...*uint64) {
	for _, to := range all {
		if r.next() {
			*to = r.Uint()
		}
	}
}

// bin reads exactly len(to) bytes; an element of another length is an error.
func (r *unpacker) bin(to []byte) {
	if !r.next() {
		return
	}
	b := r.Bytes(len(to))
	if len(b) != len(to) {
		r.Fail("binary element of %d bytes, want %d", len(b), len(to))
		return
	}
	copy(to, b)
}

// own reads mori's element if it is next.
func (r *unpacker) own(incarnation *uint64, secret []byte) {
	if !r.next() || r.Next() != decode.KindBinary {
		return
	}
	rest, ours := bytes.CutPrefix(r.Bytes(maxDescBytes), []byte(ownMagic))
	if !ours || len(rest) < 8 {
		return
	}
	*incarnation = binary.BigEndian.Uint64(rest)
	if rest = rest[8:]; len(rest) >= len(secret) {
		copy(secret, rest)
	}
}
