// SPDX-License-Identifier: MIT

package peer

import "mori/io/internal/identity"

// maxRetired limits how many former incarnations an engine remembers: 2 MiB with short keys.
const maxRetired = 1 << 14

// retired holds incarnations that were registered and may not connect unless they are registered
// again. The oldest are evicted first. The mutex of their Table guards them.
type retired struct {
	all  map[identity.ID]struct{}
	age  []identity.ID // a ring once full
	next int           // index of the oldest in a full ring
}

func (r *retired) add(who identity.ID) {
	if r.has(who) || who.Incarnation == 0 {
		return
	}
	if r.all == nil {
		r.all = map[identity.ID]struct{}{}
	}
	if len(r.age) < maxRetired {
		r.age = append(r.age, who)
	} else {
		delete(r.all, r.age[r.next])
		r.age[r.next] = who
		r.next = (r.next + 1) % maxRetired
	}
	r.all[who] = struct{}{}
}

func (r *retired) has(who identity.ID) bool {
	_, ok := r.all[who]
	return ok
}

func (r *retired) remove(who identity.ID) { delete(r.all, who) }
