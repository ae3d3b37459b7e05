// SPDX-License-Identifier: MIT

// Package peers holds what a PE needs to work with the other PEs before they share memory.
//
//   - Group is this PE among all PEs: rank and size, the exchange of values, deadlines, and what
//     ended the World.
//   - The Err variables are what errors of package shmem wrap.
//
// The other internal packages of shmem stand on it. It knows no memory and no network.
package peers
