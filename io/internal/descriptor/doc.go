// SPDX-License-Identifier: MIT

// Package descriptor holds what engines exchange by other means before they can connect.
//
//   - Engine says who an engine is and where its control plane listens.
//   - Memory names a registered region and carries the right to access it.
//   - RegionKey is that right alone.
//
// Both have a packed form, the msgpack arrays that existing users of mori exchange. Package io
// exports both types.
package descriptor
