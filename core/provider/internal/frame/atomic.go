// SPDX-License-Identifier: MIT

package frame

import (
	"mori/core/fabric"
	"mori/core/fabric/util/atomics"
)

// An AtomicCode is the operation of an atomic frame, stored as the Count of its header: the kind of
// op, the AtomicOp and the type, one byte each.
type AtomicCode uint32

// AtomicCodeOf encodes an atomic operation.
func AtomicCodeOf(kind fabric.OpKind, a *fabric.Atomic) AtomicCode {
	return AtomicCode(kind)<<16 | AtomicCode(a.Op)<<8 | AtomicCode(a.Type)
}

// Kind returns the kind of operation.
func (c AtomicCode) Kind() fabric.OpKind { return fabric.OpKind(c >> 16) }

// Op returns the operation on the target.
func (c AtomicCode) Op() fabric.AtomicOp { return fabric.AtomicOp(c >> 8) }

// Type returns the type of the elements.
func (c AtomicCode) Type() fabric.DataType { return fabric.DataType(c) }

// Access returns the rights that the operation needs.
func (c AtomicCode) Access() fabric.Access {
	return (&fabric.Op{Kind: c.Kind(), Atomic: &fabric.Atomic{Op: c.Op()}}).Access()
}

// PayloadLen returns how many bytes an operation on n bytes carries: the operand, unless it is
// ignored, and the comparison.
func (c AtomicCode) PayloadLen(n uint64) uint64 {
	switch {
	case c.Kind() == fabric.OpCompareAtomic:
		return 2 * n
	case c.Op() == fabric.AtomicRead:
		return 0
	}
	return n
}

// check returns an error if the code is invalid or n is not a valid length for it.
func (c AtomicCode) check(n uint64) error {
	if c>>24 != 0 || !fabric.AtomicValid(c.Kind(), c.Op(), c.Type()) {
		return ProtocolErr("atomic frame with code %#x", uint32(c))
	}
	if n == 0 || n > atomics.MaxBytes || n%uint64(c.Type().Size()) != 0 {
		return ProtocolErr("atomic frame of %d bytes of %v", n, c.Type())
	}
	return nil
}
