// SPDX-License-Identifier: MIT

package pathbase

import "sync/atomic"

// A SlowPath records why ops of a data path use the stream.
type SlowPath struct {
	First func(why error) // logs the first reason

	reason atomic.Pointer[string]
}

// Note records a reason.
func (s *SlowPath) Note(why error) {
	text := why.Error()
	if s.reason.Swap(&text) == nil {
		s.First(why)
	}
}

// Reason returns the last reason, or "" without one.
func (s *SlowPath) Reason() string {
	if why := s.reason.Load(); why != nil {
		return *why
	}
	return ""
}
