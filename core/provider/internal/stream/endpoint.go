// SPDX-License-Identifier: MIT

package stream

// An Endpoint is one end of a connection over one or more sockets.
type Endpoint struct{}
