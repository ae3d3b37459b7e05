// SPDX-License-Identifier: MIT

package ep

import (
	"mori/ep/internal/call"
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
)

// What all ranks of an op agree on, and where its buffers lie.
type (
	Config     = plan.Config     // Config describes one op.
	KernelType = plan.KernelType // KernelType is the family of kernels that a caller asked for.
	QuantType  = plan.QuantType  // QuantType is how combine quantises rows on the way.
	DType      = plan.DType      // DType is the type of a row's elements.
	Layout     = plan.Layout     // Layout says where each region lies in the memory of an op.
	Region     = plan.Region     // Region is a part of the memory of an op.
	CapError   = plan.CapError   // CapError names a source that was not admitted.
)

// DefaultConfig returns the default of each field that has one.
func DefaultConfig() Config { return plan.DefaultConfig() }

// ParseConfig reads a JSON object and validates it.
func ParseConfig(text []byte) (Config, error) { return plan.ParseConfig(text) }

// The families of kernels and the quantisations, with their public numbers.
const (
	KernelIntraNode     = plan.KernelIntraNode
	KernelInterNode     = plan.KernelInterNode
	KernelInterNodeV1   = plan.KernelInterNodeV1
	KernelInterNodeV1LL = plan.KernelInterNodeV1LL
	KernelAsyncLL       = plan.KernelAsyncLL
	KernelIntraNodeLL   = plan.KernelIntraNodeLL

	QuantNone          = plan.QuantNone
	QuantFp8DirectCast = plan.QuantFp8DirectCast
	QuantFp8Blockwise  = plan.QuantFp8Blockwise
	QuantFp4Blockwise  = plan.QuantFp4Blockwise
)

// The types that rows may have.
const (
	Float32        = plan.Float32
	BFloat16       = plan.BFloat16
	Float8E4M3FN   = plan.Float8E4M3FN
	Float8E4M3FNUZ = plan.Float8E4M3FNUZ
	Float4E2M1FNx2 = plan.Float4E2M1FNx2
)

// The causes that callers branch on.
var (
	ErrConfig   = plan.ErrConfig   // the configuration is invalid
	ErrShape    = plan.ErrShape    // a shape does not fit the configuration
	ErrMap      = plan.ErrMap      // a routing map does not fit the configuration
	ErrCounts   = plan.ErrCounts   // published counts are impossible
	ErrRecvCap  = plan.ErrRecvCap  // a rank would receive more rows than it may
	ErrState    = plan.ErrState    // the op cannot take this call now
	ErrMismatch = plan.ErrMismatch // the ranks made different calls
)

// What callers name in a call.
type (
	Batch  = call.Batch  // Batch is what one rank dispatches.
	Route  = call.Route  // Route is an earlier dispatch, for Dispatch and Combine to repeat.
	Output = call.Output // Output is what one rank's experts made of the rows that it received.
	Packed = call.Packed // Packed is the standard-MoE form of received rows.
)

// How many blocks and warps the kernels of a call get.
type (
	Launch = launch.Shape  // Launch is how many blocks a kernel gets, and warps for each.
	Tuning = launch.Tuning // Tuning has the launches that were measured to be the best.
	Table  = launch.Table  // Table is the part of a Tuning for one kind of device.
)

// TuningPath returns the path of the tables that ops use, and whether the environment names it.
func TuningPath() (path string, named bool) { return launch.TuningPath() }

// ReadTuning reads and checks a file of tables.
func ReadTuning(path string) (*Tuning, error) { return launch.ReadTuning(path) }
