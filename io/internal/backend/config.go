// SPDX-License-Identifier: MIT

package backend

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"mori/core"
	"mori/core/config"
	"mori/io/internal/errs"
	"mori/io/internal/transport"
)

// Config configures RDMA and TCP backends. Its JSON keys are the public attribute names.
type Config struct {
	QPPerTransfer       int        `json:"qp_per_transfer"`
	PostBatchSize       int        `json:"post_batch_size"`
	NumWorkerThreads    int        `json:"num_worker_threads"`
	PollCqMode          PollCqMode `json:"poll_cq_mode"`
	EnableNotification  bool       `json:"enable_notification"`
	NotifPerQP          int        `json:"notif_per_qp"`
	EnableChunking      bool       `json:"enable_transfer_chunking"`
	ChunkBytes          int        `json:"chunk_bytes"`
	MaxChunks           int        `json:"max_chunks_per_transfer"`
	NumNICsPerTransfer  int        `json:"num_nics_per_transfer"`
	MaxSendWR           int        `json:"max_send_wr"`
	MaxCQENum           int        `json:"max_cqe_num"`
	MaxMsgSGE           int        `json:"max_msg_sge"`
	NumStreams          int        `json:"num_streams"` // XGMI and FABRIC
	NumEvents           int        `json:"num_events"`  // XGMI and FABRIC
	DeadlineMS          int        `json:"deadline_ms"` // limit of a transfer; 0 = none
	controlTimeoutMilli int
	nics                nicEnv
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() *Config {
	return &Config{QPPerTransfer: 1, PostBatchSize: -1, NumWorkerThreads: -1,
		EnableNotification: true, NotifPerQP: 1024,
		ChunkBytes: 65536, MaxChunks: 64, NumNICsPerTransfer: 1, NumStreams: 64, NumEvents: 64, DeadlineMS: 30000}
}

// FromEnv returns a copy with the environment's overrides. Malformed values are logged and ignored.
func (c *Config) FromEnv(log *slog.Logger) *Config {
	out := *c
	warn := func(err error) {
		if err != nil {
			log.Warn("environment variable ignored", "error", err)
		}
	}
	var err error
	out.EnableNotification, err = config.StrictFlag(config.IONotification, c.EnableNotification)
	warn(err)
	out.EnableChunking, err = config.StrictFlag(config.IOChunking, c.EnableChunking)
	warn(err)
	for _, v := range []struct {
		name string
		to   *int
		lo   int
		hi   int
	}{
		{config.IOChunkBytes, &out.ChunkBytes, 1, math.MaxInt32},
		{config.IOMaxChunks, &out.MaxChunks, 1, math.MaxInt32},
		{config.IONICsPerTransfer, &out.NumNICsPerTransfer, 1, 1024},
		{config.IOQPPerTransfer, &out.QPPerTransfer, 1, 1024},
		{config.IONumWorkerThreads, &out.NumWorkerThreads, 1, 1024},
		{config.IOPostBatchSize, &out.PostBatchSize, -1, math.MaxInt32},
		{config.IODeadline, &out.DeadlineMS, 0, math.MaxInt32},
		{config.IOQPMaxSendWR, &out.MaxSendWR, 1, math.MaxInt32},
		{config.IOQPMaxCQE, &out.MaxCQENum, 1, math.MaxInt32},
		{config.IOQPMaxSGE, &out.MaxMsgSGE, 1, math.MaxInt32},
		{config.IOQPMaxMsgSGE, &out.MaxMsgSGE, 1, math.MaxInt32},
	} {
		*v.to, err = config.Int(v.name, *v.to, v.lo, v.hi)
		warn(err)
	}
	out.controlTimeoutMilli, err = config.Int(config.IOCPTimeout, 5000, 0, 86400000)
	warn(err)
	out.PollCqMode, err = pollMode(config.Get(config.IOPollCqMode), c.PollCqMode)
	warn(err)
	out.nics.read(warn)
	out.reportEffectless(log)
	return &out
}

var effectless sync.Once

// ControlTimeout returns the time limit of one control-plane exchange; 0 is no limit.
func (c *Config) ControlTimeout() time.Duration {
	return time.Duration(c.controlTimeoutMilli) * time.Millisecond
}

// Deadline returns the time limit of a transfer, counted from its submission; 0 is none.
func (c *Config) Deadline() time.Duration { return time.Duration(c.DeadlineMS) * time.Millisecond }

// reportEffectless warns once per process about settings of c that have no effect.
func (c *Config) reportEffectless(log *slog.Logger) {
	var names []string
	if c.NumWorkerThreads > 0 {
		names = append(names, fmt.Sprintf("num_worker_threads=%d (the submitting thread posts)", c.NumWorkerThreads))
	}
	if c.NumStreams > 0 && c.NumStreams != 64 {
		names = append(names, fmt.Sprintf("num_streams=%d (32 copies of a GPU at a time)", c.NumStreams))
	}
	if c.NumEvents > 0 && c.NumEvents != 64 {
		names = append(names, fmt.Sprintf("num_events=%d (as many as copies need)", c.NumEvents))
	}
	if len(names) > 0 {
		effectless.Do(func() { log.Warn("settings without effect", "settings", strings.Join(names, ", ")) })
	}
}

// forXGMI returns a copy of c for copies between GPUs of one host. These send no notifications and
// are not split into chunks for a network.
func (c *Config) forXGMI() *Config {
	out := *c
	out.EnableNotification, out.EnableChunking = false, false
	return &out
}

func pollMode(text string, def PollCqMode) (PollCqMode, error) {
	switch strings.ToLower(text) {
	case "":
		return def, nil
	case "0", "polling":
		return PollPolling, nil
	case "1", "event":
		return PollEvent, nil
	}
	return def, fmt.Errorf("%s=%s: want 0, polling, 1 or event", config.IOPollCqMode, strconv.Quote(text))
}

// Validate returns an error for settings that no backend supports.
func (c *Config) Validate() error {
	for _, r := range []struct {
		bad  bool
		text string
	}{
		{c.EnableNotification && c.NotifPerQP == 0,
			"notif_per_qp must be positive when enable_notification is on"},
		{c.MaxChunks < 1, fmt.Sprintf("max_chunks_per_transfer is %d, want at least 1", c.MaxChunks)},
		{c.NumNICsPerTransfer < 1,
			fmt.Sprintf("num_nics_per_transfer is %d, want at least 1", c.NumNICsPerTransfer)},
		{c.EnableChunking && c.ChunkBytes < 4096,
			fmt.Sprintf("chunk_bytes is %d, want at least 4096", c.ChunkBytes)},
		{c.DeadlineMS < 0, fmt.Sprintf("deadline_ms is %d, want 0 (none) or more", c.DeadlineMS)},
	} {
		if r.bad {
			return fmt.Errorf("backend config: %s: %w", r.text, errs.ErrInvalid)
		}
	}
	return nil
}

// nicEnv has the settings of RDMA devices that only the environment can set.
type nicEnv struct {
	sl, tc   int // -1: not set
	inline   int // 0: the provider's default; -1: none
	recvs    int // 0: use notif_per_qp
	noEvents bool
}

// read reads the present values. It passes malformed ones to warn and ignores them.
func (n *nicEnv) read(warn func(error)) {
	for _, v := range []struct {
		name        string
		to          *int
		def, lo, hi int
	}{
		{config.IOSL, &n.sl, -1, 0, 15}, {config.IOTC, &n.tc, -1, 0, 255},
		{config.IOQPMaxInlineData, &n.inline, -1, 0, 1 << 16},
		{config.IOQPMaxRecvWR, &n.recvs, 0, 1, 1 << 16},
	} {
		var err error
		*v.to, err = config.Int(v.name, v.def, v.lo, v.hi)
		warn(err)
	}
	switch n.inline {
	case -1:
		n.inline = 0
	case 0:
		n.inline = -1
	}
	if off, err := config.StrictFlag(config.IOTCDisable, false); off {
		n.tc = 0
	} else {
		warn(err)
	}
	events, err := config.StrictFlag(config.IOAsyncEvents, true)
	warn(err)
	n.noEvents = !events
}

// nicUse returns how a backend with this config uses RDMA devices.
func (c *Config) nicUse() core.NICUse {
	use := core.AnyNIC()
	use.NICs, use.QPs, use.Polling = c.NumNICsPerTransfer, c.QPPerTransfer, c.PollCqMode == PollPolling
	use.SendWR, use.SendSGE, use.CQE, use.PostBatch = c.MaxSendWR, c.MaxMsgSGE, c.MaxCQENum, c.PostBatchSize
	use.SL, use.TC, use.Inline, use.NoEvents = c.nics.sl, c.nics.tc, c.nics.inline, c.nics.noEvents
	switch {
	case !c.EnableNotification:
		use.RecvWR = 1
	case c.nics.recvs > 0:
		use.RecvWR = c.nics.recvs
	default:
		use.RecvWR = c.NotifPerQP
	}
	return use
}

// OpBytes returns the size in bytes at which transfers over t are split. That is the user's chunk
// size if chunking is on, else the size at which the provider is fastest.
func (c *Config) OpBytes(t *transport.Transport) uint64 {
	if c.EnableChunking {
		return uint64(c.ChunkBytes)
	}
	return t.BestOp()
}
