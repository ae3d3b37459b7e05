// SPDX-License-Identifier: MIT

// Package local has the buffers that a program registers or allocates for the local side of its
// transfers. NICs pin them once, and kernels may use them.
package local
