// SPDX-License-Identifier: MIT

package team

import (
	"errors"
	"fmt"
	"strings"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/reduceop"
)

// A teamCall describes a PE's collective call. Different calls end in an error on all members, not
// in corruption. Joining compares only a hash; the details are exchanged only if hashes differ.
type teamCall struct {
	kind teamCallKind
	args [recordLen - 1]uint64
}

// A teamCallKind is the kind of a collective call. refused means that the PE's own arguments are
// invalid, so no member may continue.
type teamCallKind uint64

const (
	teamSync teamCallKind = 1 + iota
	teamBarrier
	teamSplitStrided
	teamSplit2D
	teamDestroy
	teamBroadcast
	teamFCollect
	teamCollect    // exchange of the members' lengths
	teamCollectAll // the same with known lengths
	teamAllToAll
	teamAllToAllS
	teamReduce
	teamExplain // exchange of what the PEs called

	refused teamCallKind = 1 << 32
)

// teamText is the format of a call with its arguments.
var teamText = [...]string{
	teamSync:         "sync",
	teamBarrier:      "barrier",
	teamSplitStrided: "split from PE %d with stride %d and %d PEs",
	teamSplit2D:      "split into rows of %d",
	teamDestroy:      "destroy",
	teamBroadcast:    "broadcast of %[3]d bytes at offset %#[2]x to %#[1]x from PE %[4]d",
	teamFCollect:     "fcollect of %[3]d bytes at offset %#[2]x to %#[1]x",
	teamCollect:      "collect",
	teamCollectAll:   "collect of %[2]d bytes in all to offset %#[1]x",
	teamAllToAll:     "alltoall of %[3]d bytes at offset %#[2]x to %#[1]x",
	teamAllToAllS:    "alltoalls of %[3]d elements of %[4]d bytes with strides %[5]d and %[6]d at offset %#[2]x to %#[1]x",
	teamReduce:       "reduction (%[4]v) of %[3]d elements of type %[5]s at offset %#[2]x to %#[1]x",
	teamExplain:      "explanation",
}

// argsOf is the number of arguments of each teamText.
var argsOf = [...]int{teamSplitStrided: 3, teamSplit2D: 1, teamBroadcast: 4, teamFCollect: 3, teamCollectAll: 2, teamAllToAll: 3,
	teamAllToAllS: 6, teamReduce: 5, teamExplain: 0}

// String formats a call, such as: fcollect of 8 bytes at offset 0x40 to 0x80.
func (c teamCall) String() string {
	kind := c.kind &^ refused
	if kind == 0 || int(kind) >= len(teamText) {
		return fmt.Sprintf("call %d", kind)
	}
	args := make([]any, argsOf[kind])
	for i := range args {
		args[i] = int64(c.args[i])
	}
	if kind == teamReduce {
		args[3], args[4] = reduceop.Op(c.args[3]), reduceop.TypeName(fabric.DataType(c.args[4]))
	}
	text := fmt.Sprintf(teamText[kind], args...)
	if c.kind&refused != 0 {
		text += ", which is not valid there"
	}
	return text
}

// hash returns 31 bits of the call.
func (c *teamCall) hash() uint32 {
	h := mix(uint64(c.kind))
	for _, v := range c.args {
		h = mix(h ^ v)
	}
	return uint32(h >> 33)
}

// mix is a bijection in which each bit changes half of all others.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// join returns when all members have made this call. bad is why this PE's arguments are invalid, or
// nil. t.mu is held.
func (t *barrier) join(c *teamCall, bad error) error {
	if bad != nil {
		c.kind |= refused
	}
	same, err := t.sync(c.hash())
	if err == nil && !same {
		err = t.explain(c)
	}
	return errors.Join(bad, err)
}

// A record is what the members send each other with a call.
type record [recordLen]uint64

// exchange is join that also returns each member's record.
//
// A member overwrites its record when it enters the call after next. By then all members have
// entered the next call, and so have read it.
func (t *barrier) exchange(c *teamCall, bad error, mine record) ([]record, error) {
	at := t.area + recordAt + uint64((t.epoch+1)&1)*recordLen*8
	for i, v := range mine {
		memory.Store64(t.env.Control.Base+at+uint64(i)*8, v)
	}
	if err := t.join(c, bad); err != nil {
		return nil, err
	}
	all := make([]record, len(t.members))
	for rank := range all {
		if err := t.read(rank, at, &all[rank]); err != nil {
			return nil, t.spoil(err)
		}
	}
	return all, nil
}

// read reads the record at off of a member's control block.
func (t *barrier) read(rank int, off uint64, r *record) error {
	w, pe := t.env, t.members[rank]
	if at := w.Control.At(pe); at != 0 {
		for i := range r {
			r[i] = memory.Load64(at + off + uint64(i)*8)
		}
		return nil
	}
	raw := make([]byte, recordLen*8)
	if err := w.Net.GetNow(pe, w.Control.Regions(), off, memory.AddrOf(raw), recordLen*8); err != nil {
		return err
	}
	for i := range r {
		r[i] = memory.Load64(memory.AddrOf(raw) + uint64(i)*8)
	}
	return nil
}

// explain names each member's call, after all members have seen that they differ.
func (t *barrier) explain(c *teamCall) error {
	mine := record{uint64(c.kind)}
	copy(mine[1:], c.args[:])
	all, err := t.exchange(&teamCall{kind: teamExplain}, nil, mine)
	if err != nil {
		return errors.Join(peers.ErrMismatch, err)
	}
	var kinds []record
	pes := map[record][]int{}
	for rank, r := range all {
		if pes[r] == nil {
			kinds = append(kinds, r)
		}
		pes[r] = append(pes[r], t.members[rank])
	}
	text := make([]string, len(kinds))
	for i, r := range kinds {
		other := teamCall{kind: teamCallKind(r[0])}
		copy(other.args[:], r[1:])
		text[i] = fmt.Sprintf("%s: %v", peers.NameAll(pes[r]), other)
	}
	return fmt.Errorf("%s: %w", strings.Join(text, "; "), peers.ErrMismatch)
}
