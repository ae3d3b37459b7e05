// SPDX-License-Identifier: MIT

// Package descriptor defines the descriptors that engines exchange out of band before they can
// connect.
//
//   - Engine identifies an engine and has the address of its control plane.
//   - Memory names a registered region and carries the right to access it.
//   - RegionKey is only that right.
//
// Engine and Memory have a packed form, the msgpack arrays that existing users of mori exchange.
// Package io exports both types.
package descriptor
