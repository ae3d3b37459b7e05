// SPDX-License-Identifier: MIT

// Package receive matches arriving messages with posted receives. A [Queue] holds the receives of
// an endpoint. Each connection has a [Feed], which brings its messages into the Queue.
//
// An endpoint owns its Queue, which is safe for concurrent use. Post, Take and Deliver do not
// allocate, except for errors and for buffers that grow to their bound.
package receive
