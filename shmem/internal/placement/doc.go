// SPDX-License-Identifier: MIT

// Package placement determines where the PEs are: their node, container and GPU, and so which PEs
// can map each other's memory.
//
// Exchange is the handshake of the PEs. It compares their versions and heaps. Its Map answers all
// later questions about locations.
package placement
