// SPDX-License-Identifier: MIT

package mlx5

import "encoding/binary"

// A Field is a range of bits of a command, which is a sequence of big-endian 32-bit words: bit 0 is
// the top bit of the first byte. A field lies within one word, or has 64 bits and begins at a word.
type Field struct{ At, Bits int }

// Get returns the field's value in b.
func (f Field) Get(b []byte) uint64 {
	if f.Bits == 64 {
		return binary.BigEndian.Uint64(b[f.At/8:])
	}
	word := binary.BigEndian.Uint32(b[f.At/32*4:])
	return uint64(word>>f.shift()) & f.mask()
}

// Set writes v to the field in b. It drops bits of v that do not fit.
func (f Field) Set(b []byte, v uint64) {
	if f.Bits == 64 {
		binary.BigEndian.PutUint64(b[f.At/8:], v)
		return
	}
	at := b[f.At/32*4:]
	word := binary.BigEndian.Uint32(at)
	word &^= uint32(f.mask()) << f.shift()
	binary.BigEndian.PutUint32(at, word|uint32(v&f.mask())<<f.shift())
}

func (f Field) shift() int   { return 32 - f.Bits - f.At%32 }
func (f Field) mask() uint64 { return 1<<f.Bits - 1 }

// A slot binds a field to a variable, so that one table serves both encoding and decoding.
type slot struct {
	Field
	value any // *uint32, *uint64, *bool or *[16]byte
}

// within shifts the slots of a structure to its offset in a larger one.
func within(at int, slots []slot) []slot {
	for i := range slots {
		slots[i].At += at
	}
	return slots
}

func (s slot) put(b []byte) {
	switch v := s.value.(type) {
	case *uint32:
		s.Set(b, uint64(*v))
	case *uint64:
		s.Set(b, *v)
	case *bool:
		if *v {
			s.Set(b, 1)
		}
	case *[16]byte:
		copy(b[s.At/8:], v[:])
	}
}

func (s slot) parse(b []byte) {
	switch v := s.value.(type) {
	case *uint32:
		*v = uint32(s.Get(b))
	case *uint64:
		*v = s.Get(b)
	case *bool:
		*v = s.Get(b) != 0
	case *[16]byte:
		copy(v[:], b[s.At/8:])
	}
}
