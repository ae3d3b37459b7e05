// SPDX-License-Identifier: MIT

package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
)

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no ranks", func(c *Config) { c.WorldSize = 0 }, "world_size 0: must be 1 to"},
		{"a rank below the first", func(c *Config) { c.Rank = -1 }, "rank -1: must be 0 to 3"},
		{"a rank above the last", func(c *Config) { c.Rank = 4 }, "rank 4: must be 0 to 3"},
		{"a node that the ranks do not fill", func(c *Config) { c.GPUPerNode = 3 }, "world_size 4: must be a multiple of gpu_per_node 3"},
		{"no GPU in a node", func(c *Config) { c.GPUPerNode = 0 }, "gpu_per_node 0"},
		{"rows of nothing", func(c *Config) { c.HiddenDim = 0 }, "hidden_dim 0"},
		{"fewer than no scales", func(c *Config) { c.ScaleDim = -1 }, "scale_dim -1"},
		{"scales of less than nothing", func(c *Config) { c.ScaleTypeSize = -4 }, "scale_type_size -4"},
		{"elements of nothing", func(c *Config) { c.MaxTokenTypeSize = 0 }, "max_token_type_size 0"},
		{"no tokens ever", func(c *Config) { c.MaxNumInpToken = 0 }, "max_num_inp_token_per_rank 0"},
		{"no experts", func(c *Config) { c.ExpertsPerRank = 0 }, "num_experts_per_rank 0"},
		{"no choices", func(c *Config) { c.TopK = 0 }, "num_experts_per_token 0"},
		{"a wave of choices", func(c *Config) { c.TopK = 64 }, "num_experts_per_token 64: must be 1 to 63"},
		{"an unknown kernel", func(c *Config) { c.KernelType = 6 }, "kernel_type 6"},
		{"an unknown transport", func(c *Config) { c.QuantType = -1 }, "quant_type -1"},
		{"more experts than an int32 counts", func(c *Config) { c.ExpertsPerRank = 1 << 29 }, "world_size x num_experts_per_rank"},
		{"more choices than an int32 counts", func(c *Config) { c.MaxNumInpToken, c.TopK = 1<<26, 32 }, "x num_experts_per_token"},
		{"more positions than an int32 counts", func(c *Config) { c.MaxNumInpToken, c.TopK = 1<<27, 1 }, "world_size x world_size x"},
		{"a product of more than 64 bits", func(c *Config) {
			c.WorldSize, c.MaxNumInpToken, c.GPUPerNode, c.ExpertsPerRank = math.MaxInt32, math.MaxInt32, math.MaxInt32, 1
			c.TopK = 1
		}, "world_size x world_size x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(1, 4, 8, 2, 16)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			c.change(&cfg)
			err := cfg.Validate()
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: want %q", err, c.want)
			}
			if _, err := NewLayout(cfg, 1); !errors.Is(err, ErrConfig) {
				t.Errorf("layout: %v", err)
			}
		})
	}
}

func TestConfigTolerates(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"hints of any value", func(c *Config) {
			c.WarpNumPerBlock, c.BlockNum, c.RDMABlockNum, c.NumQPPerPE = -1, 0, -80, math.MinInt
		}},
		{"a cap that is none", func(c *Config) { c.MaxTotalRecv = -1 }},
		{"a cap above what can be received", func(c *Config) { c.MaxTotalRecv = math.MaxInt }},
		{"fewer ranks than a node has GPUs", func(c *Config) { c.GPUPerNode = 8 }},
		{"a node of six", func(c *Config) { c.WorldSize, c.GPUPerNode = 12, 6 }},
		{"scales without a size", func(c *Config) { c.ScaleDim = 56 }},
		{"more choices than experts", func(c *Config) { c.ExpertsPerRank, c.TopK = 1, 9 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(1, 4, 8, 2, 16)
			c.change(&cfg)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			if _, err := NewLayout(cfg, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSizesFollowTheContract(t *testing.T) {
	for _, c := range []struct {
		name                                 string
		world, tokens, limit                 int
		maxSend, recvPerRank, maxRecv, notAt int
	}{
		{"no cap", 8, 128, 0, 1024, 128, 1024, 8192},
		{"a negative cap is none", 8, 128, -5, 1024, 128, 1024, 8192},
		{"a cap is shared out, rounded up", 4, 128, 101, 512, 26, 104, 416},
		{"a cap that divides", 4, 128, 100, 512, 25, 100, 400},
		{"a cap of one row is one from each rank", 4, 128, 1, 512, 1, 4, 16},
		{"a cap above all changes nothing", 4, 128, 1 << 40, 512, 128, 512, 2048},
		{"the largest cap does not overflow", 4, 128, math.MaxInt, 512, 128, 512, 2048},
		{"one rank", 1, 7, 3, 7, 3, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(0, c.world, 2, 2, c.tokens)
			cfg.MaxTotalRecv = c.limit
			if cfg.SendPerRank() != c.tokens || cfg.MaxSend() != c.maxSend || cfg.RecvPerRank() != c.recvPerRank || cfg.MaxRecv() != c.maxRecv {
				t.Errorf("send %d and %d, receive %d and %d", cfg.SendPerRank(), cfg.MaxSend(), cfg.RecvPerRank(), cfg.MaxRecv())
			}
			if int(cfg.NoSlot()) != c.notAt {
				t.Errorf("no slot is %d", cfg.NoSlot())
			}
		})
	}
}

func TestPositions(t *testing.T) {
	cfg := config(0, 4, 2, 2, 10)
	for _, c := range []struct {
		kernel               KernelType
		source, token, value int
	}{
		{KernelIntraNode, 0, 0, 0}, {KernelIntraNode, 3, 9, 129}, {KernelAsyncLL, 1, 2, 42}, {KernelInterNode, 3, 9, 39},
	} {
		cfg.KernelType = c.kernel
		position := cfg.Position(c.source, c.token)
		source, token := cfg.DecodePosition(position)
		if int(position) != c.value || source != c.source || token != c.token {
			t.Errorf("%v: token %d of rank %d has position %d, which is %d of %d", c.kernel, c.token, c.source, position, token, source)
		}
	}
}

func TestParseConfig(t *testing.T) {
	const least = `{"rank": 1, "world_size": 2, "hidden_dim": 64, "max_token_type_size": 2, "max_num_inp_token_per_rank": 8,
		"num_experts_per_rank": 4, "num_experts_per_token": 2, "data_type": "bfloat16"`
	c, err := ParseConfig([]byte(least + `, "scale_dim": 3, "quant_type": " FP8_Blockwise ", "kernel_type": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Rank, want.WorldSize, want.HiddenDim, want.MaxTokenTypeSize, want.MaxNumInpToken = 1, 2, 64, 2, 8
	want.ExpertsPerRank, want.TopK, want.ScaleDim, want.QuantType, want.KernelType = 4, 2, 3, QuantFp8Blockwise, KernelAsyncLL
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	for _, text := range []string{``, `[]`, `{}`, least, least + `, "quant_type": "int8"}`, least + `, "rank": 2}`, least + `, "rank": 1e30}`} {
		if c, err := ParseConfig([]byte(text)); !errors.Is(err, ErrConfig) || c != (Config{}) {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	valid, err := json.Marshal(config(1, 4, 8, 2, 16))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(valid), `{}`, `{"quant_type":"none"}`, `{"world_size":9e18}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Config
		var err error
		decodetest.Bounded(t, len(text), func() { c, err = ParseConfig(text) })
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatal(err)
			}
			return
		}
		if l, err := NewLayout(c, 56); err == nil {
			checkLayout(t, c, l)
		}
		if again, err := json.Marshal(c); err != nil {
			t.Fatal(err)
		} else if back, err := ParseConfig(again); err != nil || back != c {
			t.Fatalf("%s became %+v, %v", again, back, err)
		}
	})
}

func TestQuantRules(t *testing.T) {
	for _, c := range []struct {
		name     string
		quant    QuantType
		kernel   KernelType
		dtype    DType
		external bool
		want     error
	}{
		{"without, float32 is summed", QuantNone, KernelInterNodeV1, Float32, false, nil},
		{"fp4 is never summed", QuantNone, KernelIntraNode, Float4E2M1FNx2, true, ErrShape},
		{"integers are never summed", QuantNone, KernelIntraNode, DType(4), true, ErrShape},
		{"no type at all", QuantFp8DirectCast, KernelIntraNode, -1, true, ErrShape},
		{"direct cast asks for nothing", QuantFp8DirectCast, KernelInterNode, Float32, false, nil},
		{"fp8 blockwise in one node", QuantFp8Blockwise, KernelIntraNode, BFloat16, true, nil},
		{"fp8 blockwise with low latency", QuantFp8Blockwise, KernelIntraNodeLL, BFloat16, true, nil},
		{"fp8 blockwise in two phases", QuantFp8Blockwise, KernelAsyncLL, BFloat16, true, nil},
		{"fp8 blockwise between nodes", QuantFp8Blockwise, KernelInterNodeV1, BFloat16, true, ErrConfig},
		{"fp8 blockwise of float32", QuantFp8Blockwise, KernelIntraNode, Float32, true, ErrConfig},
		{"fp8 blockwise in place", QuantFp8Blockwise, KernelIntraNode, BFloat16, false, ErrConfig},
		{"fp4 blockwise in one node", QuantFp4Blockwise, KernelIntraNode, BFloat16, true, nil},
		{"fp4 blockwise in two phases", QuantFp4Blockwise, KernelAsyncLL, BFloat16, true, ErrConfig},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(0, 2, 2, 2, 2)
			cfg.QuantType, cfg.KernelType = c.quant, c.kernel
			if err := cfg.CheckQuant(c.dtype, c.external); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestNamesAndNumbers(t *testing.T) {
	for i, name := range []string{"IntraNode", "InterNode", "InterNodeV1", "InterNodeV1LL", "AsyncLL", "IntraNodeLL", "kernel_type(6)"} {
		if got := KernelType(i).String(); got != name {
			t.Errorf("kernel %d is %s, want %s", i, got, name)
		}
	}
	for i, name := range []string{"none", "fp8_direct_cast", "fp8_blockwise", "fp4_blockwise", "quant_type(4)"} {
		if got := QuantType(i).String(); got != name {
			t.Errorf("transport %d is %s, want %s", i, got, name)
		}
		parsed, err := ParseQuantType("\t" + strings.ToUpper(name) + " ")
		if known := i < len(quantNames); known != (err == nil) || known && int(parsed) != i {
			t.Errorf("%s is read as %d, %v", name, parsed, err)
		}
	}
	for i, c := range []struct {
		name            string
		moved, combined bool
	}{
		{"float32", true, true},
		{"bfloat16", true, true},
		{"float8_e4m3fn", true, true},
		{"float8_e4m3fnuz", true, true},
		{"int32", false, false},
		{"float4_e2m1fn_x2", true, false},
		{"dtype 6", false, false},
	} {
		if d := DType(i); d.String() != c.name || Dispatchable(d) != c.moved || Summable(d) != c.combined {
			t.Errorf("type %d is %v, moved %v, summed %v", i, d, Dispatchable(d), Summable(d))
		}
	}
}
