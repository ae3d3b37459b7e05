// SPDX-License-Identifier: MIT

package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// maxTopK is the largest number of experts a token may choose: fewer than the lanes of the widest
// GPU wave.
const maxTopK = 63

// A Config describes one op. It is the same on all ranks but for Rank. The JSON names are those of
// mori.ops.EpDispatchCombineConfig. Its data_type is missing here, because each call has its own.
type Config struct {
	Rank              int        `json:"rank"`
	WorldSize         int        `json:"world_size"`
	HiddenDim         int        `json:"hidden_dim"`                 // most elements of a row
	ScaleDim          int        `json:"scale_dim"`                  // scales dispatched with a row, 0 = none
	ScaleTypeSize     int        `json:"scale_type_size"`            // bytes of a scale
	MaxTokenTypeSize  int        `json:"max_token_type_size"`        // most bytes of an element, over dispatch and combine
	MaxNumInpToken    int        `json:"max_num_inp_token_per_rank"` // most tokens in a dispatch of one rank
	ExpertsPerRank    int        `json:"num_experts_per_rank"`       // expert e lives on rank e / ExpertsPerRank
	TopK              int        `json:"num_experts_per_token"`
	WarpNumPerBlock   int        `json:"warp_num_per_block"`
	BlockNum          int        `json:"block_num"`
	MaxTotalRecv      int        `json:"max_total_recv_tokens"` // cap on received rows; not above 0 = none
	UseExternalInpBuf bool       `json:"use_external_inp_buf"`  // else combine's input lies in Layout.CombineIn
	KernelType        KernelType `json:"kernel_type"`
	GPUPerNode        int        `json:"gpu_per_node"`
	RDMABlockNum      int        `json:"rdma_block_num"`
	NumQPPerPE        int        `json:"num_qp_per_pe"`
	QuantType         QuantType  `json:"quant_type"`
}

// DefaultConfig has the default of each field that has one.
func DefaultConfig() Config {
	return Config{WarpNumPerBlock: 8, BlockNum: 80, UseExternalInpBuf: true, GPUPerNode: 8, NumQPPerPE: 1}
}

// ParseConfig reads a JSON object and validates it. Missing fields keep their defaults. Unknown
// fields are skipped.
func ParseConfig(text []byte) (Config, error) {
	c := DefaultConfig()
	err := json.Unmarshal(text, &c)
	if err != nil && !errors.Is(err, ErrConfig) {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("parse configuration: %w", err)
	}
	return c, nil
}

// Validate returns an error that names the first field with an impossible value. All other methods
// of Config need a valid one. The hints for a launch may have any value.
//
// A world smaller than GPUPerNode is one node. GPUPerNode need not be a power of two, because some
// programs have other values.
func (c Config) Validate() error {
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"world_size", c.WorldSize, 1, math.MaxInt32},
		{"rank", c.Rank, 0, c.WorldSize - 1},
		{"hidden_dim", c.HiddenDim, 1, math.MaxInt32},
		{"scale_dim", c.ScaleDim, 0, math.MaxInt32},
		{"scale_type_size", c.ScaleTypeSize, 0, math.MaxInt32},
		{"max_token_type_size", c.MaxTokenTypeSize, 1, math.MaxInt32},
		{"max_num_inp_token_per_rank", c.MaxNumInpToken, 1, math.MaxInt32},
		{"num_experts_per_rank", c.ExpertsPerRank, 1, math.MaxInt32},
		{"num_experts_per_token", c.TopK, 1, maxTopK},
		{"kernel_type", int(c.KernelType), 0, len(kernelNames) - 1},
		{"quant_type", int(c.QuantType), 0, len(quantNames) - 1},
		{"gpu_per_node", c.GPUPerNode, 1, math.MaxInt32},
	} {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("%s %d: must be %d to %d: %w", f.name, f.value, f.low, f.high, ErrConfig)
		}
	}
	if c.WorldSize > c.GPUPerNode && c.WorldSize%c.GPUPerNode != 0 {
		return fmt.Errorf("world_size %d: must be a multiple of gpu_per_node %d: %w", c.WorldSize, c.GPUPerNode, ErrConfig)
	}
	return c.validateProducts()
}

// validateProducts checks that each number that ranks exchange as an int32 fits one.
func (c Config) validateProducts() error {
	for _, f := range []struct {
		what    string
		factors []int
	}{
		{"world_size x num_experts_per_rank", []int{c.WorldSize, c.ExpertsPerRank}},
		{"max_num_inp_token_per_rank x num_experts_per_token", []int{c.MaxNumInpToken, c.TopK}},
		{"world_size x world_size x max_num_inp_token_per_rank", []int{c.WorldSize, c.WorldSize, c.MaxNumInpToken}},
	} {
		if product, ok := multiply(f.factors...); !ok || product > math.MaxInt32 {
			return fmt.Errorf("%s is the product of %d: must be at most %d: %w", f.what, f.factors, math.MaxInt32, ErrConfig)
		}
	}
	return nil
}

// multiply returns the product of factors that are not negative, or false if it has more than 64
// bits.
func multiply(factors ...int) (uint64, bool) {
	product, fits := uint64(1), true
	for _, f := range factors {
		high, low := bits.Mul64(product, uint64(f))
		product, fits = low, fits && high == 0
	}
	return product, fits
}

// SendPerRank returns how many tokens a rank may dispatch.
func (c Config) SendPerRank() int { return c.MaxNumInpToken }

// MaxSend returns how many tokens all ranks together may dispatch.
func (c Config) MaxSend() int { return c.WorldSize * c.SendPerRank() }

// RecvPerRank returns how many rows a rank has room for, per source. Sources may share the room
// unevenly.
func (c Config) RecvPerRank() int {
	if c.MaxTotalRecv <= 0 {
		return c.SendPerRank()
	}
	return min((c.MaxTotalRecv-1)/c.WorldSize+1, c.SendPerRank())
}

// MaxRecv returns how many rows a rank has room for.
func (c Config) MaxRecv() int { return c.WorldSize * c.RecvPerRank() }

// Experts returns the number of all experts.
func (c Config) Experts() int { return c.WorldSize * c.ExpertsPerRank }

// FirstExpert returns the first expert that lives on this rank.
func (c Config) FirstExpert() int { return c.Rank * c.ExpertsPerRank }

// MaxRows returns how many rows one token can become: one for each rank with an expert that the
// token chose.
func (c Config) MaxRows() int { return min(c.TopK, c.WorldSize) }

// NoSlot returns the entry of a routing map for a choice without a destination. It lies behind the
// last slot.
func (c Config) NoSlot() int32 { return int32(c.WorldSize * c.MaxRecv()) }

// PositionStride returns the distance between the positions of two sources.
func (c Config) PositionStride() int {
	if c.KernelType == KernelInterNode {
		return c.MaxNumInpToken
	}
	return c.MaxSend()
}

// Position returns the number by which a received row names its token.
func (c Config) Position(source, token int) int32 { return int32(source*c.PositionStride() + token) }

// DecodePosition is the inverse of Position. The result is undefined for any other number.
func (c Config) DecodePosition(position int32) (source, token int) {
	return int(position) / c.PositionStride(), int(position) % c.PositionStride()
}

// CheckQuant returns an error if combine cannot sum rows of type t with the quantisation of this
// configuration. The rows are the caller's (external), or lie in Layout.CombineIn.
func (c Config) CheckQuant(t DType, external bool) error {
	if !Summable(t) {
		return fmt.Errorf("combine rows of %v, which have no sum: %w", t, ErrShape)
	}
	if !c.QuantType.Blockwise() {
		return nil
	}
	serves := c.KernelType == KernelIntraNode || c.KernelType == KernelIntraNodeLL ||
		c.KernelType == KernelAsyncLL && c.QuantType == QuantFp8Blockwise
	switch {
	case !serves:
		return fmt.Errorf("quant_type %v with kernel_type %v: %w", c.QuantType, c.KernelType, ErrConfig)
	case t != BFloat16:
		return fmt.Errorf("quant_type %v with rows of %v: must be %v: %w", c.QuantType, t, BFloat16, ErrConfig)
	case !external:
		return fmt.Errorf("quant_type %v without use_external_inp_buf: %w", c.QuantType, ErrConfig)
	}
	return nil
}
