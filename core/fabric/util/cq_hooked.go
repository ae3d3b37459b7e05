// SPDX-License-Identifier: MIT

package util

// Hooked reports whether OnReady's hook is set. A hook may read with locks of a provider held, so a
// Source that takes such locks leaves what it has to others then.
func (q *CQ) Hooked() bool { return q.hook.Load() != nil }
