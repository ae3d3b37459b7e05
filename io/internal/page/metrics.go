// SPDX-License-Identifier: MIT

package page

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"mori/io/internal/meter"
)

// WriteMetrics writes the statistics in the Prometheus text format, version 0.0.4. The lines of a
// family are contiguous, as the format requires.
func WriteMetrics(w io.Writer, engines []meter.EngineStats) error {
	m := &metrics{out: bufio.NewWriter(w), engines: engines}
	m.perEngine("mori_io_uptime_seconds", "gauge", "Time since the engine was created.", func(e *meter.EngineStats) float64 { return e.UptimeS })
	m.perEngine("mori_io_regions", "gauge", "Registered memory regions.", func(e *meter.EngineStats) float64 { return float64(e.Regions) })
	m.perEngine("mori_io_refused_total", "counter", "Transfers that were refused before they started.",
		func(e *meter.EngineStats) float64 { return float64(e.Totals.Refused) })
	m.perEngine("mori_io_stuck", "gauge", "Transfers in flight for more than a second, at most 16 counted.",
		func(e *meter.EngineStats) float64 { return float64(len(e.Stuck)) })
	m.perEngine("mori_io_tags_dropped_total", "counter", "Tags that did not reach the peer.",
		func(e *meter.EngineStats) float64 { return float64(e.Tags.Dropped) })
	m.openPaths()
	m.perOp("mori_io_transfers_total", "counter", "Transfers that succeeded.", func(o *meter.OpStats) float64 { return float64(o.Transfers) })
	m.perOp("mori_io_bytes_total", "counter", "Bytes of operations that succeeded.", func(o *meter.OpStats) float64 { return float64(o.Bytes) })
	m.perOp("mori_io_canceled_total", "counter", "Transfers that the caller canceled; they count as failed, too.",
		func(o *meter.OpStats) float64 { return float64(o.Canceled) })
	m.perOp("mori_io_replays_total", "counter", "Transfers that continued over another path when this one broke.",
		func(o *meter.OpStats) float64 { return float64(o.Replays) })
	m.perOp("mori_io_in_flight", "gauge", "Pending transfers: submitted and not yet ended.",
		func(o *meter.OpStats) float64 { return float64(o.InFlight) })
	m.failures()
	m.latency()
	return m.out.Flush()
}

type metrics struct {
	out     *bufio.Writer
	engines []meter.EngineStats
}

// family starts a metric. help is a constant of ours and needs no escaping.
func (m *metrics) family(name, kind, help string) {
	fmt.Fprintf(m.out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// line writes one sample; labels alternates names and values.
func (m *metrics) line(name string, value float64, labels ...string) {
	m.out.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		m.out.WriteString(sep + labels[i] + `="` + labelValue.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
	}
	m.out.WriteString("} " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// labelValue escapes the characters that are special in the format.
var labelValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (m *metrics) perEngine(name, kind, help string, value func(*meter.EngineStats) float64) {
	m.family(name, kind, help)
	for i := range m.engines {
		m.line(name, value(&m.engines[i]), "engine", m.engines[i].Key)
	}
}

// eachPath calls f with the labels of each path.
func (m *metrics) eachPath(f func(p *meter.PathStats, labels []string)) {
	for i := range m.engines {
		for k := range m.engines[i].Peers {
			peer := &m.engines[i].Peers[k]
			for j := range peer.Paths {
				f(&peer.Paths[j], []string{"engine", m.engines[i].Key, "peer", peer.Key, "path", peer.Paths[j].Path})
			}
		}
	}
}

func (m *metrics) eachOp(f func(o *meter.OpStats, labels []string)) {
	m.eachPath(func(p *meter.PathStats, labels []string) {
		f(&p.Read, append(slices.Clone(labels), "op", "read"))
		f(&p.Write, append(slices.Clone(labels), "op", "write"))
	})
}

func (m *metrics) perOp(name, kind, help string, value func(*meter.OpStats) float64) {
	m.family(name, kind, help)
	m.eachOp(func(o *meter.OpStats, labels []string) { m.line(name, value(o), labels...) })
}

func (m *metrics) openPaths() {
	const name = "mori_io_path_open"
	m.family(name, "gauge", "1 while the path is connected.")
	m.eachPath(func(p *meter.PathStats, labels []string) {
		open := 0.0
		if p.Open {
			open = 1
		}
		m.line(name, open, labels...)
	})
}

func (m *metrics) failures() {
	const name = "mori_io_failures_total"
	m.family(name, "counter", "Transfers that failed, by code.")
	m.eachOp(func(o *meter.OpStats, labels []string) {
		codes := make([]string, 0, len(o.Failures))
		for code := range o.Failures {
			codes = append(codes, code)
		}
		slices.Sort(codes)
		for _, code := range codes {
			m.line(name, float64(o.Failures[code]), append(slices.Clone(labels), "code", code)...)
		}
	})
}

func (m *metrics) latency() {
	const name = "mori_io_latency_seconds"
	m.family(name, "histogram", "Time from submission until success was reported.")
	m.eachOp(func(o *meter.OpStats, labels []string) {
		at, sum := 0, uint64(0)
		for _, us := range meter.Bounds() {
			for at < len(o.Latency.Buckets) && o.Latency.Buckets[at].BelowUS != nil && *o.Latency.Buckets[at].BelowUS <= us {
				sum += o.Latency.Buckets[at].Count
				at++
			}
			m.line(name+"_bucket", float64(sum), append(slices.Clone(labels), "le", strconv.FormatFloat(float64(us)/1e6, 'g', -1, 64))...)
		}
		m.line(name+"_bucket", float64(o.Latency.Count), append(slices.Clone(labels), "le", "+Inf")...)
		m.line(name+"_sum", o.Latency.SumUS/1e6, labels...)
		m.line(name+"_count", float64(o.Latency.Count), labels...)
	})
}
