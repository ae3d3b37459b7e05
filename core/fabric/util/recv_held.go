// SPDX-License-Identifier: MIT

package util

// Held is how much of the room is taken: the bytes of waiting messages and the fixed cost of each.
func (r *RecvQueue) Held() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}
