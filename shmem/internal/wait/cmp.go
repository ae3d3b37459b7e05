// SPDX-License-Identifier: MIT

package wait

import (
	"fmt"

	"mori/core/fabric"
)

// A Type is the element type of a call.
type Type = fabric.DataType

// A Cmp compares an element of memory, on the left, with a value.
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

// String returns the operator.
func (c Cmp) String() string {
	if c < CmpEQ || c > CmpLE {
		return fmt.Sprintf("comparison %d", int(c))
	}
	return cmpText[c]
}
