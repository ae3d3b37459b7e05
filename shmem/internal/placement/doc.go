// SPDX-License-Identifier: MIT

// Package placement finds out where the PEs are: on which node, in which container, on which GPU,
// and so which of them can map each other's memory.
//
// Exchange is the first thing that PEs do together. It compares their versions and heaps, and the
// Map that it returns answers all later questions on who is where.
package placement
