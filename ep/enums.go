// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"strings"
)

// A KernelType is the family of kernels that a caller asked for. What they compute is the same; only AsyncLL may be
// called in two phases.
type KernelType int32

// The families, with their public numbers.
const (
	KernelIntraNode KernelType = iota
	KernelInterNode
	KernelInterNodeV1
	KernelInterNodeV1LL
	KernelAsyncLL
	KernelIntraNodeLL
)

var kernelNames = [...]string{"IntraNode", "InterNode", "InterNodeV1", "InterNodeV1LL", "AsyncLL", "IntraNodeLL"}

// String is the public name.
func (k KernelType) String() string {
	if !k.known() {
		return fmt.Sprintf("kernel_type(%d)", int32(k))
	}
	return kernelNames[k]
}

func (k KernelType) known() bool { return k >= 0 && int(k) < len(kernelNames) }

// A QuantType is how combine's rows travel.
type QuantType int32

// The ways, with their public numbers.
const (
	QuantNone QuantType = iota
	QuantFp8DirectCast
	QuantFp8Blockwise
	QuantFp4Blockwise
)

var quantNames = [...]string{"none", "fp8_direct_cast", "fp8_blockwise", "fp4_blockwise"}

// ParseQuantType reads the name that a configuration has for it; case and white space around it do not matter.
func ParseQuantType(name string) (QuantType, error) {
	wanted := strings.ToLower(strings.TrimSpace(name))
	for i, known := range quantNames {
		if wanted == known {
			return QuantType(i), nil
		}
	}
	return 0, fmt.Errorf("quant_type %q: must be one of %s: %w", name, strings.Join(quantNames[:], ", "), ErrConfig)
}

// String is the name that a configuration has for it.
func (q QuantType) String() string {
	if !q.known() {
		return fmt.Sprintf("quant_type(%d)", int32(q))
	}
	return quantNames[q]
}

// MarshalText writes the name.
func (q QuantType) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText reads what ParseQuantType reads.
func (q *QuantType) UnmarshalText(text []byte) (err error) {
	*q, err = ParseQuantType(string(text))
	return err
}

// Blockwise reports whether scales travel beside the rows.
func (q QuantType) Blockwise() bool { return q == QuantFp8Blockwise || q == QuantFp4Blockwise }

func (q QuantType) known() bool { return q >= 0 && int(q) < len(quantNames) }
