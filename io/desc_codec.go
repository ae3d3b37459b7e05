// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Descriptors travel as the msgpack arrays that existing users of mori exchange: 6 elements for an engine, 15 for
// a region. Ours appends one more, which other decoders ignore: a bin of ownMagic, the incarnation (8 bytes,
// big endian), and for a region its secret (16 bytes). Shorter arrays leave later fields at their defaults; longer
// ones, a further element that is not ours, and trailing bytes are ignored; bin is accepted for str.

const (
	engineDescLen = 6
	memoryDescLen = 15

	// ownMagic opens our element; its last byte is the version. Later versions may only append.
	ownMagic = "mori\x01"

	// maxDescBytes bounds what unpacking may allocate.
	maxDescBytes = 64 << 10
)

// Pack encodes d. Without an incarnation it is the plain 6-element array.
func (d EngineDesc) Pack() []byte {
	w := newPacker()
	own := d.Incarnation != 0
	w.array(engineDescLen, own)
	w.str(d.Key, d.NodeID, d.Hostname, d.Host)
	w.int(int64(d.Port), int64(d.PID))
	if own {
		w.own(d.Incarnation, nil)
	}
	return w.buf.Bytes()
}

// UnpackEngineDesc decodes what Pack or another implementation of the format wrote.
func UnpackEngineDesc(b []byte) (EngineDesc, error) {
	var d EngineDesc
	r, err := newUnpacker("engine", b)
	if err != nil {
		return d, err
	}
	r.str(&d.Key, &d.NodeID, &d.Hostname, &d.Host)
	r.int(&d.Port, &d.PID)
	r.own(&d.Incarnation, nil)
	if r.err != nil {
		return EngineDesc{}, fmt.Errorf("unpack engine descriptor of %d bytes: %v: %w", len(b), r.err, ErrInvalid)
	}
	return d, nil
}

// Pack encodes d. Without a secret it is the plain 15-element array.
func (d MemoryDesc) Pack() []byte {
	w := newPacker()
	own := d.Incarnation != 0 || !isZero(d.Secret[:])
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

// UnpackMemoryDesc decodes what Pack or another implementation of the format wrote.
func UnpackMemoryDesc(b []byte) (MemoryDesc, error) {
	d := NewMemoryDesc()
	r, err := newUnpacker("memory", b)
	if err != nil {
		return d, err
	}
	var id, loc uint64
	r.str(&d.EngineKey)
	r.uint(&id)
	r.int(&d.DeviceID)
	r.str(&d.DeviceBusID)
	r.uint(&d.Data, &d.Size, &loc)
	r.bin(d.IPCHandle[:])
	r.int(&d.NUMANode)
	r.uint(&d.IPCOffset)
	r.bin(d.FabricHandle[:])
	r.int(&d.VPodID)
	r.str(&d.VPodPPodID)
	r.uint(&d.FabricOffset, &d.FabricAllocSize)
	r.own(&d.Incarnation, d.Secret[:])
	if r.err == nil && (id > 1<<32-1 || loc > uint64(LocGPU)) {
		r.err = fmt.Errorf("id %d or location %d out of range", id, loc)
	}
	if r.err != nil {
		return NewMemoryDesc(), fmt.Errorf("unpack memory descriptor of %d bytes: %v: %w", len(b), r.err, ErrInvalid)
	}
	d.ID, d.Loc = uint32(id), MemoryLocation(loc)
	return d, nil
}

// A packer appends elements; writes to a bytes.Buffer do not fail.
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

// array opens an array of n public elements and, with own, ours.
func (w packer) array(n int, own bool) {
	if own {
		n++
	}
	_ = w.enc.EncodeArrayLen(n)
}

// own appends our element.
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

// An unpacker reads elements until the array ends; after that, reads leave their targets alone. The first
// error sticks.
type unpacker struct {
	dec  *msgpack.Decoder
	left int
	err  error
}

func newUnpacker(what string, b []byte) (*unpacker, error) {
	if len(b) == 0 || len(b) > maxDescBytes {
		return nil, fmt.Errorf("unpack %s descriptor of %d bytes, want 1 to %d: %w", what, len(b), maxDescBytes, ErrInvalid)
	}
	dec := msgpack.NewDecoder(bytes.NewReader(b))
	n, err := dec.DecodeArrayLen()
	if err != nil || n < 1 {
		return nil, fmt.Errorf("unpack %s descriptor of %d bytes: not an array (%v): %w", what, len(b), err, ErrInvalid)
	}
	return &unpacker{dec: dec, left: n}, nil
}

// next tells whether there is another element to read.
func (r *unpacker) next() bool {
	if r.err != nil || r.left == 0 {
		return false
	}
	r.left--
	return true
}

func (r *unpacker) str(all ...*string) {
	for _, to := range all {
		if !r.next() {
			return
		}
		if r.expect(isText) {
			*to, r.err = r.dec.DecodeString()
		}
	}
}

func (r *unpacker) int(all ...*int) {
	for _, to := range all {
		if !r.next() || !r.expect(isInt) {
			return
		}
		*to, r.err = r.dec.DecodeInt()
	}
}

func (r *unpacker) uint(all ...*uint64) {
	for _, to := range all {
		if !r.next() || !r.expect(isInt) {
			return
		}
		*to, r.err = r.dec.DecodeUint64()
	}
}

// bin fills to; an element of another length is an error.
func (r *unpacker) bin(to []byte) {
	if !r.next() || !r.expect(isText) {
		return
	}
	b, err := r.dec.DecodeBytes()
	if err == nil && len(b) != len(to) {
		err = fmt.Errorf("binary element of %d bytes, want %d", len(b), len(to))
	}
	r.err = err
	if err == nil {
		copy(to, b)
	}
}

// own reads our element, if the next one is.
func (r *unpacker) own(incarnation *uint64, secret []byte) {
	c, err := r.dec.PeekCode()
	if !r.next() || err != nil || !msgpcode.IsBin(c) {
		return
	}
	b, err := r.dec.DecodeBytes()
	if err != nil {
		r.err = err
		return
	}
	rest, ours := bytes.CutPrefix(b, []byte(ownMagic))
	if ours && len(rest) >= 8+len(secret) {
		*incarnation = binary.BigEndian.Uint64(rest)
		copy(secret, rest[8:])
	}
}

// expect checks the kind of the next element, since the decoder itself converts nil and floats.
func (r *unpacker) expect(ok func(byte) bool) bool {
	c, err := r.dec.PeekCode()
	if err == nil && !ok(c) {
		err = fmt.Errorf("element of msgpack type 0x%02x", c)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
	return err == nil
}

func isText(c byte) bool {
	return msgpcode.IsString(c) || msgpcode.IsBin(c)
}

func isInt(c byte) bool {
	return msgpcode.IsFixedNum(c) || c >= msgpcode.Uint8 && c <= msgpcode.Int64
}
