// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"strings"
)

// A KernelType is the family of kernels that a caller asked for. All compute the same. Only AsyncLL
// may be called in two phases.
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

// String returns the public name.
func (k KernelType) String() string {
	if !k.known() {
		return fmt.Sprintf("kernel_type(%d)", int32(k))
	}
	return kernelNames[k]
}

func (k KernelType) known() bool { return k >= 0 && int(k) < len(kernelNames) }

// SpansHosts reports whether the ranks of an op on GPUs may be on several hosts.
func (k KernelType) SpansHosts() bool {
	return k == KernelInterNode || k == KernelInterNodeV1 || k == KernelInterNodeV1LL || k == KernelAsyncLL
}

// Hierarchical reports whether a token is sent once to each host instead of once to each rank.
func (k KernelType) Hierarchical() bool { return k == KernelInterNodeV1 || k == KernelInterNodeV1LL }

// A QuantType is how combine quantises rows on the way.
type QuantType int32

// The quantisations, with their public numbers.
const (
	QuantNone QuantType = iota
	QuantFp8DirectCast
	QuantFp8Blockwise
	QuantFp4Blockwise
)

var quantNames = [...]string{"none", "fp8_direct_cast", "fp8_blockwise", "fp4_blockwise"}

// ParseQuantType reads a name as in a configuration. It ignores case and white space around it.
func ParseQuantType(name string) (QuantType, error) {
	wanted := strings.ToLower(strings.TrimSpace(name))
	for i, known := range quantNames {
		if wanted == known {
			return QuantType(i), nil
		}
	}
	return 0, fmt.Errorf("quant_type %q: must be one of %s: %w", name, strings.Join(quantNames[:], ", "), ErrConfig)
}

// String returns the name as in a configuration.
func (q QuantType) String() string {
	if !q.known() {
		return fmt.Sprintf("quant_type(%d)", int32(q))
	}
	return quantNames[q]
}

// MarshalText writes the name.
func (q QuantType) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText reads a name as ParseQuantType does.
func (q *QuantType) UnmarshalText(text []byte) (err error) {
	*q, err = ParseQuantType(string(text))
	return err
}

// Blockwise reports whether each row has scales of its own.
func (q QuantType) Blockwise() bool { return q == QuantFp8Blockwise || q == QuantFp4Blockwise }

func (q QuantType) known() bool { return q >= 0 && int(q) < len(quantNames) }
