// SPDX-License-Identifier: MIT

package wait

import (
	"fmt"

	"mori/core/fabric"
)

// A Type is the type of the elements that a call works on.
type Type = fabric.DataType

// A Cmp is how an element of memory, on the left, compares with a value.
type Cmp int

// The comparisons, in OpenSHMEM's order.
const (
	CmpEQ Cmp = 1 + iota
	CmpNE
	CmpGT
	CmpGE
	CmpLT
	CmpLE
)

var cmpText = [...]string{CmpEQ: "==", CmpNE: "!=", CmpGT: ">", CmpGE: ">=", CmpLT: "<", CmpLE: "<="}

// String is the operator.
func (c Cmp) String() string {
	if c < CmpEQ || c > CmpLE {
		return fmt.Sprintf("comparison %d", int(c))
	}
	return cmpText[c]
}
