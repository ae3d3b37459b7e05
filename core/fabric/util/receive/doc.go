// SPDX-License-Identifier: MIT

// Package receive matches arriving messages with posted receives: a [Queue] holds the receives of
// an endpoint, and messages come into it through one [Feed] for each connection.
//
// An endpoint owns its Queue, which is safe for concurrent use. Post, Take and Deliver do not
// allocate, but for errors and for buffers that grow to their bound.
package receive
