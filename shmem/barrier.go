// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"time"

	"mori/core/memory"
	"mori/shmem/internal/peers"
)

// How the members of a team meet. Each call of a team is an epoch, and a member leaves it when all have entered it.
//
// Dissemination: in round r each member tells the one that is 2^r behind it, after log2(n) rounds everybody has heard of everybody.
// Words of odd and even epochs have different cells. That is enough: who tells of epoch e+2 has left e+1, so everybody
// has entered e+1, and so has read all cells of e.
//
// Central: each member adds to a word of its group's leader, and the last of them tells all that wait. It costs more on an idle
// machine, but each member runs only once, where in dissemination it runs up to log2(n) times: on 2 cores, 8 PEs need a third
// of the time. The groups of several hosts enter centrally, their leaders disseminate, and the leaders release them.
//
// With the epoch travels a hash of what the member calls. In dissemination a word has the hash and whether any other hash was
// heard of: whoever has heard of nobody different and is told a word equal to its own knows of twice as many. Centrally the
// hashes are added up. So after the epoch either all members know that all calls were the same, or all know that they were not.
//
// A word of dissemination, releaseAt and gatheredAt: the epoch in the high half; 31 bits of hash; whether calls differ in bit 0. The word of
// arriveAt: how many have entered, in the bits above countAt, and the sum of their hashes.

const countAt = 48

// A hop is one round of dissemination.
type hop struct {
	to, from int    // PEs
	tell     uint64 // address of the round's cells at to, 0 if it is not mapped
	off      uint64 // offset of the round's cells in control blocks
	own      uint64 // address of this PE's own
}

// hops are the rounds among some PEs, of which this one is the i-th.
func (t *Team) hops(pes []int, i int) []hop {
	n, control := len(pes), t.w.control
	hops := make([]hop, roundsOf(n))
	for r := range hops {
		h := hop{to: pes[(i+1<<r)%n], from: pes[(i+n-1<<r%n)%n], off: t.area + roundsAt + uint64(r)*line}
		h.own = control.Base + h.off
		if at := control.At(h.to); at != 0 {
			h.tell = at + h.off
		}
		hops[r] = h
	}
	return hops
}

// BarrierAll returns when all PEs have called it, and all that they had put is where it belongs (shmem_barrier_all).
func (w *World) BarrierAll() error { return w.TeamWorld().Barrier() }

// SyncAll returns when all PEs have called it; what went to PEs whose memory is not mapped may still be on its way (shmem_sync_all).
func (w *World) SyncAll() error { return w.TeamWorld().Sync() }

// The hashes of the calls that have no arguments.
var (
	syncHash    = (&teamCall{kind: teamSync}).hash()
	barrierHash = (&teamCall{kind: teamBarrier}).hash()
)

// Barrier returns when all members have called it, and all that they had put is where it belongs.
func (t *Team) Barrier() error {
	if t == nil {
		return fmt.Errorf("barrier of %v: %w", t, t.usable())
	}
	if err := t.w.drain(); err != nil {
		return fmt.Errorf("barrier of %v: %w", t, err)
	}
	return t.come(teamBarrier, barrierHash)
}

// Sync returns when all members have called it (shmem_team_sync).
func (t *Team) Sync() error {
	if t == nil {
		return fmt.Errorf("sync of %v: %w", t, t.usable())
	}
	return t.come(teamSync, syncHash)
}

// come is meet for a call without arguments.
func (t *Team) come(kind teamCallKind, hash uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	same, err := t.sync(hash)
	if err == nil && !same {
		err = t.explain(&teamCall{kind: kind})
	}
	if err != nil {
		return fmt.Errorf("%v of %v: %w", teamCall{kind: kind}, t, err)
	}
	return nil
}

// sync is one epoch. It reports whether all members came with the same hash. It needs t.mu.
func (t *Team) sync(hash uint32) (same bool, err error) {
	if t.broken != nil {
		return false, t.broken
	}
	if err := t.w.pes.Check(); err != nil {
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
func (t *Team) disseminate(hops []hop, word uint64) (same bool, err error) {
	parity := word >> 32 & 1 * 8
	for i := range hops {
		h := &hops[i]
		if h.tell != 0 {
			memory.Store64(h.tell+parity, word)
			t.w.waiter.WakeControl(h.to)
		} else if err := t.w.waiter.Post(h.to, h.off+parity, word); err != nil {
			return false, fmt.Errorf("tell PE %d: %w", h.to, err)
		}
		told, err := t.until(h.own+parity, h.from)
		if err != nil {
			return false, err
		}
		if told != word {
			word |= 1
		}
	}
	return word&1 == 0, nil
}

// gather is sync through the leader of the group.
func (t *Team) gather(hash uint32) (same bool, err error) {
	group := t.groups[t.group]
	leader := t.members[group[0]]
	at := t.w.control.At(leader) + t.area
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
		t.w.waiter.WakeControl(leader)
	}
	told, err := t.until(at+releaseAt, leader)
	return err == nil && told&1 == 0, err
}

// release lets the group go whose leader's area is at at.
func (t *Team) release(at, word uint64) (same bool) {
	memory.Store64(at+releaseAt, word)
	for _, rank := range t.groups[t.group] {
		if rank != t.me {
			t.w.waiter.WakeControl(t.members[rank])
		}
	}
	return word&1 == 0
}

// firstLooks is how often until looks by itself, which is quicker than through await.
const firstLooks = 16

// until waits for a word of this epoch, and returns it. from is the PE whose word it is, -1 if it may be any.
func (t *Team) until(at uint64, from int) (uint64, error) {
	e := t.epoch
	for range firstLooks {
		if v := memory.Load64(at); uint32(v>>32) == e {
			return v, nil
		}
	}
	memory.Store64(t.w.control.Base+t.area+enteredAt, uint64(e))
	err := t.w.waiter.Await(func() string { return t.absent(e, from) }, func() bool { return uint32(memory.Load64(at)>>32) == e })
	return memory.Load64(at), err
}

// absent tells who has not come, as far as can be seen: who waits says so in its control block, and who does not wait has not come.
func (t *Team) absent(e uint32, from int) string {
	var absent []int
	entered := t.entered()
	for rank, pe := range t.members {
		if rank != t.me && uint32(entered[rank]) != e {
			absent = append(absent, pe)
		}
	}
	if len(absent) == 0 && from >= 0 { // it came too late, or what it told is lost
		absent = append(absent, from)
	}
	return fmt.Sprintf("%s in call %d of %v", peers.NameAll(absent), e, t)
}

// askFor is how long the PEs of other hosts have to tell where they are. That of one that is stopped never comes.
const askFor = time.Second

// entered is which epoch each member waits in.
func (t *Team) entered() []uint64 {
	w, off, words := t.w, t.area+enteredAt, make([]uint64, len(t.members))
	raw := make([]byte, 8*len(words))
	t.asked = raw // what comes late still has a place
	far := false
	for rank, pe := range t.members {
		into := memory.AddrOf(raw) + 8*uint64(rank)
		if at := w.control.At(pe); at != 0 {
			memory.Store64(into, memory.Load64(at+off))
		} else if w.pes.Check() == nil {
			far = w.net.Get(pe, w.control.Regions(), off, into, 8) == nil || far
		}
	}
	if far {
		_ = w.net.Quiet(time.Now().Add(askFor)) // whose word has not come is taken for absent
	}
	for rank := range words {
		words[rank] = memory.Load64(memory.AddrOf(raw) + 8*uint64(rank))
	}
	return words
}

// vacate waits until no member looks at the area of another any more, and clears this PE's. It is the last thing that the
// team does, and always dissemination: each member then waits only for words in its own area.
func (t *Team) vacate() error {
	t.epoch++
	if _, err := t.disseminate(t.all, uint64(t.epoch)<<32); err != nil {
		return t.spoil(err)
	}
	at := t.w.control.Base + t.area
	for off := uint64(0); off < areaSize(t.w.pes.N); off += 8 {
		memory.Store64(at+off, 0)
	}
	return nil
}
