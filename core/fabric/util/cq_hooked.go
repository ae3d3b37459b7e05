// SPDX-License-Identifier: MIT

package util

// Hooked reports whether completions are told to a hook (OnReady), which runs on the goroutine that pushes them, so that no other
// goroutine has to be made ready.
func (q *CQ) Hooked() bool { return q.hook.Load() != nil }
