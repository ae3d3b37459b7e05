// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"math/bits"

	"mori/core/fabric"
)

// flagsOf are the valid flags of each kind of op.
var flagsOf = [...]fabric.OpFlags{
	fabric.OpSend:          fabric.OpWantCQE | fabric.OpRemoteData | fabric.OpInject | fabric.OpFence | fabric.OpLevels,
	fabric.OpRecv:          fabric.OpWantCQE,
	fabric.OpRead:          fabric.OpWantCQE | fabric.OpFence | fabric.OpLevels,
	fabric.OpWrite:         fabric.OpWantCQE | fabric.OpRemoteData | fabric.OpInject | fabric.OpFence | fabric.OpLevels,
	fabric.OpAtomic:        fabric.OpWantCQE | fabric.OpInject | fabric.OpFence | fabric.OpLevels,
	fabric.OpFetchAtomic:   fabric.OpWantCQE | fabric.OpFence | fabric.OpLevels,
	fabric.OpCompareAtomic: fabric.OpWantCQE | fabric.OpFence | fabric.OpLevels,
}

// CheckOp is CheckOpLen without the length.
func CheckOp(op *fabric.Op, lim *fabric.Limits) error {
	_, err := CheckOpLen(op, lim)
	return err
}

// CheckOpLen rejects invalid ops and returns op.Len. It returns ErrInvalid for kinds, lengths and
// counts, ErrBadFlags, ErrMsgSize, and ErrNoSys for atomics if lim has none. It does not check what
// only the target knows.
func CheckOpLen(op *fabric.Op, lim *fabric.Limits) (n uint64, err error) {
	if int(op.Kind) >= len(flagsOf) || flagsOf[op.Kind] == 0 {
		return 0, fmt.Errorf("submit op of kind %d: %w", op.Kind, fabric.ErrInvalid)
	}
	if level := op.Flags & fabric.OpLevels; op.Flags&^flagsOf[op.Kind] != 0 || level&(level-1) != 0 {
		return 0, fmt.Errorf("submit %v with flags %#x: %w", op.Kind, op.Flags, fabric.ErrBadFlags)
	}
	switch op.Kind {
	case fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic:
		n, err = op.Seg.Len, checkAtomic(op, lim)
	default:
		n, err = checkPlain(op, lim)
	}
	if err != nil {
		return 0, err
	}
	if op.Flags&fabric.OpInject != 0 && n > lim.MaxInject {
		return 0, fmt.Errorf("inject %d bytes, limit is %d: %w", n, lim.MaxInject, fabric.ErrMsgSize)
	}
	return n, nil
}

// checkPlain checks an op that is not an atomic.
func checkPlain(op *fabric.Op, lim *fabric.Limits) (uint64, error) {
	if op.Blocks != nil {
		return op.Blocks.Bytes(), checkBlocks(op, lim)
	}
	n, err := localLen(op, lim)
	switch {
	case err != nil:
		return 0, err
	case op.Atomic != nil:
		return 0, fmt.Errorf("submit %v with an atomic: %w", op.Kind, fabric.ErrInvalid)
	case n > lim.MaxMsg && op.Kind != fabric.OpRecv:
		return 0, fmt.Errorf("submit %v of %d bytes, limit is %d: %w", op.Kind, n, lim.MaxMsg, fabric.ErrMsgSize)
	case op.Kind == fabric.OpRead || op.Kind == fabric.OpWrite:
		return n, checkRemote(op, n, lim)
	case op.RSeg != (fabric.RSeg{}) || len(op.RMore) != 0:
		return 0, fmt.Errorf("submit %v with remote segments: %w", op.Kind, fabric.ErrInvalid)
	}
	return n, nil
}

// checkBlocks is checkPlain for an op of blocks. Blocks.Set guarantees that they have one size and
// stay within 2^64.
func checkBlocks(op *fabric.Op, lim *fabric.Limits) error {
	b := op.Blocks
	switch {
	case op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite, op.Atomic != nil, op.Flags&fabric.OpInject != 0, len(op.More) != 0, len(op.RMore) != 0:
		return fmt.Errorf("submit %v of blocks with flags %#x, %d and %d further segments: %w", op.Kind, op.Flags, len(op.More), len(op.RMore), fabric.ErrInvalid)
	case lim.BlockLimit == 0:
		return fmt.Errorf("submit %v of blocks: %w", op.Kind, fabric.ErrNotSupported)
	case b.Size() == 0 || b.Len() > lim.BlockLimit:
		return fmt.Errorf("submit %v of %d blocks of %d bytes, limit is %d: %w", op.Kind, b.Len(), b.Size(), lim.BlockLimit, fabric.ErrInvalid)
	case b.Bytes() > lim.MaxMsg:
		return fmt.Errorf("submit %v of %d bytes, limit is %d: %w", op.Kind, b.Bytes(), lim.MaxMsg, fabric.ErrMsgSize)
	case badSeg(op.Seg) || b.LocalEnd() > op.Seg.Len || b.RemoteEnd() > op.RSeg.Len:
		return fmt.Errorf("submit %v of blocks up to %d and %d in %d local and %d remote bytes: %w", op.Kind, b.LocalEnd(), b.RemoteEnd(), op.Seg.Len, op.RSeg.Len, fabric.ErrInvalid)
	}
	return nil
}

func localLen(op *fabric.Op, lim *fabric.Limits) (uint64, error) {
	if 1+len(op.More) > lim.SegLimit {
		return 0, fmt.Errorf("submit %v with %d local segments, limit is %d: %w", op.Kind, 1+len(op.More), lim.SegLimit, fabric.ErrInvalid)
	}
	n := op.Seg.Len
	bad := badSeg(op.Seg)
	for i := range op.More {
		var carry uint64
		n, carry = bits.Add64(n, op.More[i].Len, 0)
		bad = bad || carry != 0 || badSeg(op.More[i])
	}
	if bad {
		return 0, fmt.Errorf("submit %v with a local segment that is not a valid address range: %w", op.Kind, fabric.ErrInvalid)
	}
	return n, nil
}

// CheckPrivate rejects private data of a connection that is longer than limit.
func CheckPrivate(private []byte, limit int) error {
	if len(private) > limit {
		return fmt.Errorf("%d bytes of private data, limit is %d: %w", len(private), limit, fabric.ErrTooSmall)
	}
	return nil
}

// badSeg reports whether a segment is nil or wraps around.
func badSeg(s fabric.Seg) bool {
	return s.Len != 0 && (s.Addr == 0 || s.Addr+s.Len < s.Addr)
}

func checkRemote(op *fabric.Op, n uint64, lim *fabric.Limits) error {
	if 1+len(op.RMore) > lim.RSegLimit {
		return fmt.Errorf("submit %v with %d remote segments, limit is %d: %w", op.Kind, 1+len(op.RMore), lim.RSegLimit, fabric.ErrInvalid)
	}
	rn := op.RSeg.Len
	for i := range op.RMore {
		var carry uint64
		rn, carry = bits.Add64(rn, op.RMore[i].Len, 0)
		if carry != 0 {
			return fmt.Errorf("submit %v whose remote lengths overflow: %w", op.Kind, fabric.ErrInvalid)
		}
		if op.RMore[i].Key != op.RSeg.Key {
			return fmt.Errorf("submit %v to two regions at once: %w", op.Kind, fabric.ErrInvalid)
		}
	}
	if rn != n {
		return fmt.Errorf("submit %v of %d local and %d remote bytes: %w", op.Kind, n, rn, fabric.ErrInvalid)
	}
	return nil
}

func checkAtomic(op *fabric.Op, lim *fabric.Limits) error {
	a, n := op.Atomic, op.Seg.Len
	if lim.MaxAtomic == 0 {
		return fmt.Errorf("submit %v: %w", op.Kind, fabric.ErrNoSys)
	}
	if a == nil {
		return fmt.Errorf("submit %v without an atomic: %w", op.Kind, fabric.ErrInvalid)
	}
	if !fabric.AtomicValid(op.Kind, a.Op, a.Type) {
		return fmt.Errorf("submit %v %v of %v: %w", op.Kind, a.Op, a.Type, fabric.ErrInvalid)
	}
	needs := [...]struct {
		name string
		seg  fabric.Seg
		due  bool
	}{
		{"an operand", op.Seg, a.Op != fabric.AtomicRead},
		{"a compare segment", a.Compare, op.Kind == fabric.OpCompareAtomic},
		{"a result segment", a.Result, op.Kind != fabric.OpAtomic},
	}
	for _, need := range &needs {
		if need.due && (need.seg.Len != n || badSeg(need.seg)) {
			return fmt.Errorf("submit %v of %d bytes with %s of %d bytes that is too short or not a valid address range: %w", op.Kind, n, need.name, need.seg.Len, fabric.ErrInvalid)
		}
	}
	switch {
	case len(op.More) != 0 || len(op.RMore) != 0 || op.Blocks != nil:
		return fmt.Errorf("submit %v with more than one segment: %w", op.Kind, fabric.ErrInvalid)
	case n == 0 || n%uint64(a.Type.Size()) != 0:
		return fmt.Errorf("submit %v of %d bytes, elements have %d: %w", op.Kind, n, a.Type.Size(), fabric.ErrInvalid)
	case op.RSeg.Len != n:
		return fmt.Errorf("submit %v of %d local and %d remote bytes: %w", op.Kind, n, op.RSeg.Len, fabric.ErrInvalid)
	case n > lim.MaxAtomic:
		return fmt.Errorf("submit %v of %d bytes, limit is %d: %w", op.Kind, n, lim.MaxAtomic, fabric.ErrMsgSize)
	}
	return nil
}
