// SPDX-License-Identifier: MIT

package team

import (
	"fmt"
	"time"

	"mori/core/memory"
	"mori/shmem/internal/peers"
)

const countAt = 48

// A roster lists the members of a team, as one of them sees it.
type roster struct {
	name    string
	members []int   // the PEs, by their number in the team
	me      int     // this PE's number in the team
	groups  [][]int // numbers of the members that map each other's memory
	group   int     // index of this PE's group in groups
	groupOf []int   // by number in the team
}

// String returns the team's name and size.
func (t *roster) String() string { return fmt.Sprintf("team %s of %d PEs", t.name, len(t.members)) }

// leads reports whether this PE is the leader of its group.
func (t *roster) leads() bool { return t.groups[t.group][0] == t.me }

// receiverIn returns the member of a group that receives rank's data for the group.
func (t *roster) receiverIn(group, rank int) int {
	ranks := t.groups[group]
	return ranks[rank%len(ranks)]
}

// A barrier synchronises the members of a team. Its owner calls one method at a time.
type barrier struct {
	*roster
	env     *Env
	area    uint64 // offset of the team's area in control blocks
	central bool   // its algorithm (doc.go)
	all     []hop  // dissemination over all members
	leaders []hop  // dissemination over the groups' leaders, if this PE is one and there are several

	epoch  uint32 // of the latest sync
	broken error  // why the team is unusable
	asked  []byte // receives the words of entered
}

// A hop is one round of dissemination.
type hop struct {
	to, from int    // PEs
	notify   uint64 // address of the round's cells at to, 0 if not mapped
	off      uint64 // offset of the round's cells in control blocks
	own      uint64 // address of this PE's own cells
}

// hops returns the rounds among some PEs, of which this one is the i-th.
func (t *barrier) hops(pes []int, i int) []hop {
	n, control := len(pes), t.env.Control
	hops := make([]hop, roundsOf(n))
	for r := range hops {
		h := hop{to: pes[(i+1<<r)%n], from: pes[(i+n-1<<r%n)%n], off: t.area + roundsAt + uint64(r)*line}
		h.own = control.Base + h.off
		if at := control.At(h.to); at != 0 {
			h.notify = at + h.off
		}
		hops[r] = h
	}
	return hops
}

// sync runs one epoch. It reports whether all members passed the same hash. t.mu is held.
func (t *barrier) sync(hash uint32) (same bool, err error) {
	if t.broken != nil {
		return false, t.broken
	}
	if err := t.env.PEs.Check(); err != nil {
		return false, err
	}
	t.epoch++
	if t.central {
		same, err = t.gather(hash)
	} else {
		same, err = t.disseminate(t.all, uint64(t.epoch)<<32|uint64(hash)<<1)
	}
	if err != nil {
		_ = t.spoil(err)
	}
	return same, err
}

// disseminate runs the rounds, starting with the given word.
func (t *barrier) disseminate(hops []hop, word uint64) (same bool, err error) {
	parity := word >> 32 & 1 * 8
	for i := range hops {
		h := &hops[i]
		if h.notify != 0 {
			memory.Store64(h.notify+parity, word)
			t.env.Waiter.WakeControl(h.to)
		} else if err := t.env.Waiter.Post(h.to, h.off+parity, word); err != nil {
			return false, fmt.Errorf("notify PE %d: %w", h.to, err)
		}
		seen, err := t.until(h.own+parity, h.from)
		if err != nil {
			return false, err
		}
		if seen != word {
			word |= 1
		}
	}
	return word&1 == 0, nil
}

// gather is sync through the leader of the group.
func (t *barrier) gather(hash uint32) (same bool, err error) {
	group := t.groups[t.group]
	leader := t.members[group[0]]
	at := t.env.Control.At(leader) + t.area
	word := uint64(t.epoch) << 32
	sum := memory.Add64(at+arriveAt, 1<<countAt|uint64(hash))
	last := sum>>countAt == uint64(len(group))
	if last {
		memory.Store64(at+arriveAt, 0) // no member adds to it before the release
		if sum&(1<<countAt-1) != uint64(len(group))*uint64(hash) {
			word |= 1
		}
	}
	switch several := len(t.groups) > 1; {
	case last && !several:
		return t.release(at, word), nil
	case t.leads() && several:
		if !last {
			if word, err = t.until(at+gatheredAt, -1); err != nil {
				return false, err
			}
		}
		if same, err = t.disseminate(t.leaders, word|uint64(hash)<<1); err != nil {
			return false, err
		}
		word |= 1
		if same {
			word--
		}
		return t.release(at, word), nil
	case last:
		memory.Store64(at+gatheredAt, word)
		t.env.Waiter.WakeControl(leader)
	}
	seen, err := t.until(at+releaseAt, leader)
	return err == nil && seen&1 == 0, err
}

// release releases the group of the leader whose area is at at.
func (t *barrier) release(at, word uint64) (same bool) {
	memory.Store64(at+releaseAt, word)
	for _, rank := range t.groups[t.group] {
		if rank != t.me {
			t.env.Waiter.WakeControl(t.members[rank])
		}
	}
	return word&1 == 0
}

// firstLooks is how often until polls itself, which is faster than await.
const firstLooks = 16

// until waits for a word of this epoch, and returns it. from is the PE that writes it, -1 if any PE
// may.
func (t *barrier) until(at uint64, from int) (uint64, error) {
	e := t.epoch
	for range firstLooks {
		if v := memory.Load64(at); uint32(v>>32) == e {
			return v, nil
		}
	}
	memory.Store64(t.env.Control.Base+t.area+enteredAt, uint64(e))
	err := t.env.Waiter.Await(func() string { return t.absent(e, from) }, func() bool { return uint32(memory.Load64(at)>>32) == e })
	return memory.Load64(at), err
}

// absent lists the members that have not entered, as far as known. A waiting member has set the
// epoch in its control block.
func (t *barrier) absent(e uint32, from int) string {
	var absent []int
	entered := t.entered()
	for rank, pe := range t.members {
		if rank != t.me && uint32(entered[rank]) != e {
			absent = append(absent, pe)
		}
	}
	if len(absent) == 0 && from >= 0 { // it was too late, or its message was lost
		absent = append(absent, from)
	}
	return fmt.Sprintf("%s in call %d of %v", peers.NameAll(absent), e, t)
}

// askFor is how long PEs of other hosts have to report where they are. A stopped PE never reports.
const askFor = time.Second

// entered returns the epoch in which each member waits.
func (t *barrier) entered() []uint64 {
	w, off, words := t.env, t.area+enteredAt, make([]uint64, len(t.members))
	raw := make([]byte, 8*len(words))
	t.asked = raw // late reports still find room
	far := false
	for rank, pe := range t.members {
		into := memory.AddrOf(raw) + 8*uint64(rank)
		if at := w.Control.At(pe); at != 0 {
			memory.Store64(into, memory.Load64(at+off))
		} else if w.PEs.Check() == nil {
			far = w.Net.Get(pe, w.Control.Regions(), off, into, 8) == nil || far
		}
	}
	if far {
		_ = w.Net.Quiet(time.Now().Add(askFor)) // a member without a report counts as absent
	}
	for rank := range words {
		words[rank] = memory.Load64(memory.AddrOf(raw) + 8*uint64(rank))
	}
	return words
}

// vacate waits until no member uses the area of another, and clears this PE's. It is the team's
// last operation and always uses dissemination, in which each member waits only for words in its
// own area.
func (t *barrier) vacate() error {
	t.epoch++
	if _, err := t.disseminate(t.all, uint64(t.epoch)<<32); err != nil {
		return t.spoil(err)
	}
	at := t.env.Control.Base + t.area
	for off := uint64(0); off < areaSize(t.env.PEs.N); off += 8 {
		memory.Store64(at+off, 0)
	}
	return nil
}

// next waits until all members have reached this point of a call.
func (t *barrier) next() error {
	_, err := t.sync(0) // they have agreed on the call already
	return err
}

// spoil makes the team unusable, because its members may be at different points.
func (t *barrier) spoil(err error) error {
	if t.broken == nil {
		t.broken = fmt.Errorf("the team is unusable: %w", err)
	}
	return err
}
