// SPDX-License-Identifier: MIT

// Package peers is what a PE needs to work with the other PEs before they share memory.
//
//   - Group is this PE among all PEs: rank and size, the exchange of values, deadlines, and why the
//     World ended.
//   - The Err variables are the errors of package shmem.
//
// The other internal packages of shmem build on it. It uses no memory of the heap and no network.
package peers
