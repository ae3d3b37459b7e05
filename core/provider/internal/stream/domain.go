// SPDX-License-Identifier: MIT

package stream

// A Domain holds the memory regions, the queues and the endpoints of one device.
type Domain struct{}
