// SPDX-License-Identifier: MIT

// Package decode decodes untrusted msgpack and JSON. A general decoder allocates the length that a
// message claims. This package first compares every length with the bytes that are left. So the
// size of a message bounds what the decoder allocates, whatever the message contains.
//
// Unmarshal decodes a msgpack array into a struct. A Reader decodes msgpack element by element.
// Neither recurses, and neither keeps a reference to the message. JSON decodes JSON.
package decode
