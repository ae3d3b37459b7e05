// SPDX-License-Identifier: MIT

package util

// Hooked reports whether the queue has a hook (OnReady): its reader is then told of entries and does not look for them.
func (q *CQ) Hooked() bool { return q.hook.Load() != nil }
