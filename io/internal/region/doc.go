// SPDX-License-Identifier: MIT

// Package region has the memory that an engine has registered.
//
//   - A Region is registered with each transport that takes it. It counts the transfers that use it
//     on this side, so that deregistering can wait for them. The transports handle accesses by
//     peers.
//   - A Table finds regions by id and key.
//   - locate finds the GPU that memory is on, and reach.go the connection between two GPUs.
package region
