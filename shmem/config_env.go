// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"mori/core"
	"mori/core/bootstrap/iface"
	"mori/core/config"
	"mori/core/logging"
	"mori/shmem/internal/heap"
)

const (
	defaultHeap    = 4 << 30
	defaultVMMHeap = 16 << 30
	leastChunk     = 64 << 20
)

// ConfigFromEnv returns the configuration that the environment asks for. It logs invalid values and
// uses the default, except for the heap size: a wrong size would cause failures much later. For
// anything that this build does not support it returns an error that wraps errors.ErrUnsupported.
func ConfigFromEnv() (Config, error) {
	log := logging.For("shmem")
	warn := func(err error) {
		if err != nil {
			log.Warn("environment variable ignored", "error", err)
		}
	}
	config.ReportUnknown(log)
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	nodeID, err := core.NodeID(hostname)
	if err != nil {
		return Config{}, err
	}
	cfg := Config{Log: log, NodeID: nodeID, DisableP2P: config.Flag(config.DisableP2P, false)}
	if addr, err := iface.HostAddr(); err != nil {
		warn(err)
	} else {
		cfg.Host = addr.String()
	}
	if cfg.Device, err = deviceFromEnv(); err != nil {
		return cfg, err
	}
	cfg.Mode, err = mode(config.Get(config.ShmemMode))
	warn(err)
	switch v := strings.ToLower(strings.TrimSpace(config.Get(config.ShmemHeapType))); v {
	case "", "normal", "uncached": // no effect in host memory
	default:
		warn(fmt.Errorf("%s=%q: want uncached or normal", config.ShmemHeapType, v))
	}
	if err := cfg.sizes(log); err != nil {
		return cfg, err
	}
	cfg.NIC = strings.TrimSpace(config.Get(config.ShmemNIC))
	cfg.QPPerPE, err = config.Int(config.NumQPPerPE, 4, 1, math.MaxInt32)
	warn(err)
	seconds, err := config.Int(config.BootstrapTimeout, 300, 1, math.MaxInt32)
	warn(err)
	seconds, err = config.Int(config.ShmemTimeout, seconds, 0, math.MaxInt32)
	warn(err)
	cfg.Timeout = time.Duration(seconds) * time.Second
	return cfg, nil
}

// sizes reads the heap sizes. Text that is not a size is an error. Defaults shrink to the available
// memory; values set by the user do not.
func (c *Config) sizes(log *slog.Logger) error {
	def := uint64(defaultHeap)
	if c.Mode == VMMHeap {
		def = defaultVMMHeap
	}
	n, who := heap.MemoryLimit(os.DirFS("/"))
	if c.Device != nil {
		n, who = c.Device.Bytes, c.Device.String()
	}
	if n > 0 && n/2 < def {
		def = max(n/2, leastHeap) &^ (1<<20 - 1)
		log.Info("the default heap is smaller than usual", "bytes", def, "because", who, "allows", n)
	}
	var err error
	if c.HeapSize, err = size(config.ShmemHeapSize, def); err != nil {
		return err
	}
	if c.ChunkSize, err = size(config.ShmemVMMChunkSize, defaultChunk); err != nil {
		return err
	}
	if c.ChunkSize < leastChunk {
		log.Warn("environment variable ignored", "error",
			fmt.Errorf("%s=%d: want at least %d", config.ShmemVMMChunkSize, c.ChunkSize, leastChunk))
		c.ChunkSize = leastChunk
	}
	return nil
}

// mode reads a heap mode, in lower or in upper case.
func mode(text string) (Mode, error) {
	text = strings.TrimSpace(text)
	for m, name := range heap.ModeNames {
		if text == name || text == strings.ToUpper(name) {
			return Mode(m), nil
		}
	}
	if text == "" {
		return StaticHeap, nil
	}
	return StaticHeap, fmt.Errorf("%s=%q: want %s", config.ShmemMode, text, strings.Join(heap.ModeNames[:], ", "))
}

// size reads a variable; unset is def.
func size(name string, def uint64) (uint64, error) {
	text := config.Get(name)
	if strings.TrimSpace(text) == "" {
		return def, nil
	}
	n, err := ParseSize(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// ParseSize reads a number of bytes: digits, and K, M, G or T, which may be followed by B or iB.
// All are powers of 1024.
func ParseSize(text string) (uint64, error) {
	t := strings.ToUpper(strings.TrimSpace(text))
	digits := strings.TrimRight(t, "KMGTIB ")
	shift, known := 0, true
	if unit := strings.TrimSpace(t[len(digits):]); unit != "" && unit != "B" {
		at := strings.IndexByte("KMGT", unit[0])
		known = at >= 0 && (unit[1:] == "" || unit[1:] == "B" || unit[1:] == "IB")
		shift = 10 * (at + 1)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !known || n == 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size: want a number of bytes such as 67108864, 64M, 64MB or 64MiB: %w", text, ErrInvalid)
	}
	return n << shift, nil
}
