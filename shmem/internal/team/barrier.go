// SPDX-License-Identifier: MIT

package team

import (
	"fmt"
	"time"

	"mori/core/memory"
	"mori/shmem/internal/peers"
)

const countAt = 48

// A roster says who the members of a team are, as one of them sees it.
type roster struct {
	name    string
	members []int   // the PEs, by their number in the team
	me      int     // this PE's number in the team
	groups  [][]int // numbers of the members whose memory is mapped by each other
	group   int     // this PE's, in groups
	groupOf []int   // by number in the team
}

// String returns the team's name and size.
func (t *roster) String() string { return fmt.Sprintf("team %s of %d PEs", t.name, len(t.members)) }

// leads reports whether this PE is the leader of its group.
func (t *roster) leads() bool { return t.groups[t.group][0] == t.me }

// receiverIn returns which member of a group gets what rank has for the group.
func (t *roster) receiverIn(group, rank int) int {
	ranks := t.groups[group]
	return ranks[rank%len(ranks)]
}

// A barrier has the members of a team wait for each other. Its owner calls one method at a time.
type barrier struct {
	*roster
	env     *Env
	area    uint64 // where the team's area is in control blocks
	central bool   // its algorithm (doc.go)
	all     []hop  // dissemination over all members
	leaders []hop  // dissemination over the groups' leaders, if this PE is one and there are several

	epoch  uint32 // of the latest sync
	broken error  // why the team cannot be used any more
	asked  []byte // where words of entered arrive
}

// A hop is one round of dissemination.
type hop struct {
	to, from int    // PEs
	notify   uint64 // address of the round's cells at to, 0 if it is not mapped
	off      uint64 // offset of the round's cells in control blocks
	own      uint64 // address of this PE's own
}

// hops are the rounds among some PEs, of which this one is the i-th.
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

// sync is one epoch. It reports whether all members came with the same hash. It needs t.mu.
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

// disseminate goes through the rounds, beginning with the given word.
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
		memory.Store64(at+arriveAt, 0) // nobody adds to it before they are released
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

// release lets the group go whose leader's area is at at.
func (t *barrier) release(at, word uint64) (same bool) {
	memory.Store64(at+releaseAt, word)
	for _, rank := range t.groups[t.group] {
		if rank != t.me {
			t.env.Waiter.WakeControl(t.members[rank])
		}
	}
	return word&1 == 0
}

// firstLooks is how often until looks by itself, which is quicker than through await.
const firstLooks = 16

// until waits for a word of this epoch, and returns it. from is the PE whose word it is, -1 if it
// may be any.
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

// absent names the members that have not come, as far as can be seen: a member that waits says so
// in its control block, and one that does not wait has not come.
func (t *barrier) absent(e uint32, from int) string {
	var absent []int
	entered := t.entered()
	for rank, pe := range t.members {
		if rank != t.me && uint32(entered[rank]) != e {
			absent = append(absent, pe)
		}
	}
	if len(absent) == 0 && from >= 0 { // it came too late, or what it sent is lost
		absent = append(absent, from)
	}
	return fmt.Sprintf("%s in call %d of %v", peers.NameAll(absent), e, t)
}

// askFor is how long the PEs of other hosts have to answer where they are. A PE that is stopped
// never answers.
const askFor = time.Second

// entered is which epoch each member waits in.
func (t *barrier) entered() []uint64 {
	w, off, words := t.env, t.area+enteredAt, make([]uint64, len(t.members))
	raw := make([]byte, 8*len(words))
	t.asked = raw // what comes late still has a place
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
		_ = w.Net.Quiet(time.Now().Add(askFor)) // whose word has not come is taken for absent
	}
	for rank := range words {
		words[rank] = memory.Load64(memory.AddrOf(raw) + 8*uint64(rank))
	}
	return words
}

// vacate waits until no member looks at the area of another any more, and clears this PE's. It is
// the last thing that the team does, and always dissemination: each member then waits only for
// words in its own area.
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

// next waits until all members have come as far as this one in a call.
func (t *barrier) next() error {
	_, err := t.sync(0) // they have agreed on the call before
	return err
}

// spoil makes the team unusable, as its members no longer agree where they are.
func (t *barrier) spoil(err error) error {
	if t.broken == nil {
		t.broken = fmt.Errorf("the team is unusable: %w", err)
	}
	return err
}
