// SPDX-License-Identifier: MIT

// Package atomics has the cases of atomic ops, and a reference of what each does.
package atomics
