// SPDX-License-Identifier: MIT

// Package devices has the cases of memory that the CPU cannot or may not touch: device memory, and
// memory that was unmapped or is protected.
package devices
