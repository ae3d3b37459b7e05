// SPDX-License-Identifier: MIT

// Package remote reaches the PEs whose memory is not mapped here, through one endpoint of a
// provider of core/fabric.
//
//   - Network has the operations: put, get, atomics, fence, quiet. Open chooses the provider.
//   - Regions says where a block of symmetric memory lies on each PE, as the provider names it.
//   - pool holds the pending operations, each with its bounce buffer; the completion queue returns
//     them.
//   - epochs separates what was queued before a quiet from what is queued meanwhile.
//   - selection has all PEs agree on the providers that all of them have (select.go).
//   - probe tries the way to each PE before the World counts on it.
package remote
