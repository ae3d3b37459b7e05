// SPDX-License-Identifier: MIT

// Package atomics executes atomic ops of fabric on the memory of this process.
package atomics
