// SPDX-License-Identifier: MIT

// Package remote reaches PEs whose memory is not mapped here, through one endpoint of a provider of
// core/fabric.
//
//   - Network has the operations: put, get, atomics, fence, quiet. Open chooses the provider.
//   - Regions records where a block of symmetric memory lies on each PE, as the provider addresses
//     it.
//   - pool holds the pending operations, each with its bounce buffer; the completion queue returns
//     them.
//   - epochs separates the ops queued before a quiet from those queued meanwhile.
//   - selection makes all PEs agree on the providers that all of them have (select.go).
//   - probe tests the connection to each PE before the World relies on it.
package remote
