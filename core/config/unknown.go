// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// effectless are settings of AMD's MORI that have no effect here. Programs set them by habit.
var effectless = []string{
	"MORI_APP_LOG_LEVEL", "MORI_CORE_LOG_LEVEL", "MORI_METRICS_LOG_LEVEL", "MORI_OPS_LOG_LEVEL",
	"MORI_UMBP_LOG_LEVEL", "MORI_LOG_PATTERN", "MORI_BNXT_ENABLE_UDP_SPORT", "MORI_CCO_BC",
	"MORI_CORE_OFFSET", "MORI_DISABLE_IONIC_CCQE", "MORI_ENABLE_SDMA", "MORI_GOR_PORT",
	"MORI_GOR_PORT1", "MORI_GOR_PORT2", "MORI_GOR_PORT3", "MORI_GOR_PORT4",
	"MORI_IGNORE_CPU_AFFINITY", "MORI_IO_FABRIC_DISABLE", "MORI_IO_FABRIC_VPOD_ID",
	"MORI_IO_SQ_BACKOFF_TIMEOUT_US", "MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD",
	"MORI_MLX5_ENABLE_UDP_SPORT", "MORI_ROCM_SMI_PATH", "MORI_ROCTX", "MORI_ROCTX_TRANSFER",
	"MORI_SDMA_NUM_CHANNELS",
}

// ofTests are prefixes of the names that only this repository's tests read.
var ofTests = []string{"MORI_TEST", "MORI_REQUIRE", "MORI_SOAK", "MORI_EMULATED_", "MORI_BARE_", "MORI_KEEP_"}

var environ atomic.Pointer[func() []string]

// SetEnviron replaces the function that lists the environment as name=value; nil restores
// os.Environ.
func SetEnviron(f func() []string) {
	if f == nil {
		environ.Store(nil)
		return
	}
	environ.Store(&f)
}

// Unknown returns a message for each environment variable with the prefix MORI_ that mori does not
// read. The message contains the nearest name that exists.
func Unknown() []string {
	list := os.Environ
	if f := environ.Load(); f != nil {
		list = *f
	}
	known := map[string]bool{}
	for _, v := range variables() {
		known[v.Name] = true
	}
	var out []string
	for _, entry := range list() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "MORI_") || known[name] || slices.Contains(effectless, name) ||
			slices.ContainsFunc(ofTests, func(start string) bool { return strings.HasPrefix(name, start) }) {
			continue
		}
		if near := nearest(name); near != "" {
			out = append(out, fmt.Sprintf("mori has no variable %s: did you mean %s?", name, near))
		} else {
			out = append(out, fmt.Sprintf("mori has no variable %s: \"mori env\" lists them", name))
		}
	}
	slices.Sort(out)
	return out
}

var reported sync.Map // messages of Unknown that have been logged

// ReportUnknown logs the messages of Unknown, each once per process.
func ReportUnknown(log *slog.Logger) {
	for _, message := range Unknown() {
		if _, before := reported.LoadOrStore(message, true); !before {
			log.Warn("environment variable ignored", "error", message)
		}
	}
}

// nearest returns the setting with the smallest distance from name, or "" if all differ in more
// than a quarter of its letters.
func nearest(name string) string {
	best, least := "", len(name)/4+1
	for _, v := range variables() {
		if d := distance(name, v.Name); d < least {
			best, least = v.Name, d
		}
	}
	return best
}

// distance returns how many letters must be changed, added or removed to turn a into b
// (Levenshtein, "Binary codes capable of correcting deletions, insertions and reversals", 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
