// SPDX-License-Identifier: MIT

// Package transfer has the cases that move bytes: messages and remote memory access, their order,
// levels, limits and refusals, and many ops at once.
package transfer
