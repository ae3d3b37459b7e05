// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"math/bits"

	"mori/core/fabric"
)

// flagsOf are the flags that go with a kind of op.
var flagsOf = [...]fabric.OpFlags{
	fabric.OpSend:  fabric.OpWantCQE | fabric.OpRemoteData | fabric.OpInject | fabric.OpFence,
	fabric.OpRecv:  fabric.OpWantCQE,
	fabric.OpRead:  fabric.OpWantCQE | fabric.OpFence,
	fabric.OpWrite: fabric.OpWantCQE | fabric.OpRemoteData | fabric.OpInject | fabric.OpFence,
}

// CheckOp refuses an op that could not mean anything: ErrInvalid for kinds, lengths and counts, ErrBadFlags, ErrMsgSize. What only
// the target knows is not looked at.
func CheckOp(op *fabric.Op, lim *fabric.Limits) error {
	if int(op.Kind) >= len(flagsOf) || flagsOf[op.Kind] == 0 {
		return fmt.Errorf("submit op of kind %d: %w", op.Kind, fabric.ErrInvalid)
	}
	if op.Flags&^flagsOf[op.Kind] != 0 {
		return fmt.Errorf("submit %v with flags %#x: %w", op.Kind, op.Flags, fabric.ErrBadFlags)
	}
	n, err := localLen(op, lim)
	if err != nil {
		return err
	}
	switch {
	case n > lim.MaxMsg && op.Kind != fabric.OpRecv:
		return fmt.Errorf("submit %v of %d bytes, limit is %d: %w", op.Kind, n, lim.MaxMsg, fabric.ErrMsgSize)
	case op.Flags&fabric.OpInject != 0 && n > lim.MaxInject:
		return fmt.Errorf("inject %d bytes, limit is %d: %w", n, lim.MaxInject, fabric.ErrMsgSize)
	case op.Kind == fabric.OpRead || op.Kind == fabric.OpWrite:
		return checkRemote(op, n, lim)
	case op.RSeg != (fabric.RSeg{}) || len(op.RMore) != 0:
		return fmt.Errorf("submit %v with remote segments: %w", op.Kind, fabric.ErrInvalid)
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
		return 0, fmt.Errorf("submit %v with a local segment that is no memory: %w", op.Kind, fabric.ErrInvalid)
	}
	return n, nil
}

// badSeg finds a nil or wrapping segment.
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
