// SPDX-License-Identifier: MIT

package shmem

import "mori/shmem/internal/wait"

// A Type is the type of the elements that a call works on.
type Type = wait.Type

// A Cmp is how an element of memory, on the left, compares with a value.
type Cmp = wait.Cmp

// The comparisons, in OpenSHMEM's order.
const (
	CmpEQ = wait.CmpEQ
	CmpNE = wait.CmpNE
	CmpGT = wait.CmpGT
	CmpGE = wait.CmpGE
	CmpLT = wait.CmpLT
	CmpLE = wait.CmpLE
)
