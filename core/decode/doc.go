// SPDX-License-Identifier: MIT

// Package decode decodes msgpack and JSON that came from outside the process. A general decoder
// allocates the length that a message claims; here every length is compared with the bytes that
// are left first. What a decoder allocates is therefore bounded by the size of the message, not by
// its contents.
//
// Unmarshal decodes a msgpack array into a struct. A Reader decodes msgpack element by element.
// Neither recurses, and neither keeps a reference to the message. JSON decodes JSON.
package decode
