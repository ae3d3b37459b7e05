// SPDX-License-Identifier: MIT

package page

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/io/internal/meter"
)

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*="`)
)

// A sample is a line of the text format.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

func (s sample) String() string { return fmt.Sprint(s.name, s.labels) }

// parse reads the Prometheus text format, version 0.0.4. It rejects what the format forbids:
// samples outside of their family, a family twice, the same sample twice, counters that do not end
// in _total, bad escapes.
func parse(text string) ([]sample, error) {
	if !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	var out []sample
	var family, kind, helped string
	families, seen := map[string]bool{}, map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch f := strings.SplitN(line, " ", 4); {
		case strings.HasPrefix(line, "# HELP "):
			helped = f[2]
		case strings.HasPrefix(line, "# TYPE "):
			family, kind = f[2], f[3]
			if families[family] || helped != family || kind == "counter" && !strings.HasSuffix(family, "_total") {
				return nil, fmt.Errorf("line %d: bad family: %s", i+1, line)
			}
			families[family] = true
		default:
			s, err := parseSample(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w: %q", i+1, err, line)
			}
			base := s.name
			if kind == "histogram" {
				base = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(base, "_bucket"), "_sum"), "_count")
			}
			if base != family || seen[s.String()] || !strings.HasPrefix(s.name, "mori_io_") {
				return nil, fmt.Errorf("line %d: out of its family, or twice: %q", i+1, line)
			}
			seen[s.String()] = true
			out = append(out, s)
		}
	}
	return out, nil
}

func parseSample(line string) (sample, error) {
	s := sample{name: metricName.FindString(line), labels: map[string]string{}}
	rest := line[len(s.name):]
	if s.name == "" {
		return s, fmt.Errorf("no name")
	}
	if strings.HasPrefix(rest, "{") {
		rest = rest[1:]
		for !strings.HasPrefix(rest, "}") {
			label := labelName.FindString(rest)
			if label == "" {
				return s, fmt.Errorf("bad label at %q", rest)
			}
			value, n, err := unquote(rest[len(label):])
			if err != nil {
				return s, err
			}
			s.labels[label[:len(label)-2]] = value
			rest = strings.TrimPrefix(rest[len(label)+n:], ",")
		}
		rest = rest[1:]
	}
	var err error
	s.value, err = strconv.ParseFloat(strings.TrimPrefix(rest, " "), 64)
	return s, err
}

// unquote reads a label's value up to and including the closing quote.
func unquote(in string) (value string, n int, err error) {
	var b strings.Builder
	for i := 0; i < len(in); i++ {
		switch in[i] {
		case '"':
			return b.String(), i + 1, nil
		case '\\':
			i++
			c, ok := map[byte]byte{'\\': '\\', '"': '"', 'n': '\n'}[in[min(i, len(in)-1)]]
			if !ok {
				return "", 0, fmt.Errorf("bad escape")
			}
			b.WriteByte(c)
		default:
			b.WriteByte(in[i])
		}
	}
	return "", 0, fmt.Errorf("value without end")
}

// evil is a name that an untrusted peer may have chosen.
const evil = "<img src=x onerror=alert(1)>\\n\\\"\n}{=,\u0000</script>é"

func engineStats() []meter.EngineStats {
	var s meter.Set
	w := s.Path(evil, "shm/cma").Op(false)
	for _, d := range []time.Duration{500, 3 * time.Microsecond, 3 * time.Microsecond, time.Millisecond, 100 * time.Second} {
		w.Enter()
		w.Moved(1 << 20)
		w.Succeeded(d)
	}
	w.Enter()
	w.Failed(13, true)
	w.Enter()
	name := func(uint32) string { return "ERR_RDMA_OP" }
	a := meter.EngineStats{Key: "a", Peers: s.Peers(name), Regions: 3, Totals: meter.Totals{Refused: 2}, Stuck: []meter.Transfer{}, Slowest: []meter.Transfer{}}
	a.Peers[0].Paths[0].Open = true
	return []meter.EngineStats{a, {Key: "b\xff"}}
}

func TestMetricsAreReadBack(t *testing.T) {
	var out bytes.Buffer
	if err := WriteMetrics(&out, engineStats()); err != nil {
		t.Fatal(err)
	}
	all, err := parse(out.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	path := map[string]string{"engine": "a", "peer": evil, "path": "shm/cma"}
	write := map[string]string{"engine": "a", "peer": evil, "path": "shm/cma", "op": "write"}
	le := func(v string) map[string]string {
		return map[string]string{"engine": "a", "peer": evil, "path": "shm/cma", "op": "write", "le": v}
	}
	for _, want := range []sample{
		{"mori_io_transfers_total", write, 5}, {"mori_io_bytes_total", write, 5 << 20}, {"mori_io_in_flight", write, 1}, {"mori_io_canceled_total", write, 1},
		{"mori_io_failures_total", map[string]string{"engine": "a", "peer": evil, "path": "shm/cma", "op": "write", "code": "ERR_RDMA_OP"}, 1},
		{"mori_io_path_open", path, 1}, {"mori_io_regions", map[string]string{"engine": "a"}, 3}, {"mori_io_refused_total", map[string]string{"engine": "a"}, 2},
		{"mori_io_regions", map[string]string{"engine": "b\uFFFD"}, 0},
		{"mori_io_latency_seconds_bucket", le("1e-06"), 1}, {"mori_io_latency_seconds_bucket", le("2e-06"), 1}, {"mori_io_latency_seconds_bucket", le("4e-06"), 3},
		{"mori_io_latency_seconds_bucket", le("0.001024"), 4}, {"mori_io_latency_seconds_bucket", le("67.108864"), 4}, {"mori_io_latency_seconds_bucket", le("+Inf"), 5},
		{"mori_io_latency_seconds_count", write, 5}, {"mori_io_latency_seconds_sum", write, 100.0010065},
	} {
		got := math.NaN()
		for _, s := range all {
			if s.String() == want.String() {
				got = s.value
			}
		}
		if math.Abs(got-want.value) > 1e-9*want.value || math.IsNaN(got) {
			t.Errorf("%v is %v, want %v", want, got, want.value)
		}
	}
}

func TestBucketsOnlyGrow(t *testing.T) {
	var out bytes.Buffer
	if err := WriteMetrics(&out, engineStats()); err != nil {
		t.Fatal(err)
	}
	all, err := parse(out.String())
	if err != nil {
		t.Fatal(err)
	}
	lastLE, lastN, buckets := 0.0, 0.0, 0
	for _, s := range all {
		if s.name != "mori_io_latency_seconds_bucket" || s.labels["op"] != "write" {
			continue
		}
		le, err := strconv.ParseFloat(s.labels["le"], 64)
		if err != nil || le <= lastLE || s.value < lastN {
			t.Errorf("%v after le %v: %v, before %v, %v", s, lastLE, s.value, lastN, err)
		}
		lastLE, lastN, buckets = le, s.value, buckets+1
	}
	if buckets != meter.Buckets || !math.IsInf(lastLE, 1) {
		t.Errorf("%d buckets, the last %v", buckets, lastLE)
	}
}

func TestTheParserRefuses(t *testing.T) {
	const head = "# HELP mori_io_x_total h\n# TYPE mori_io_x_total counter\n"
	for name, text := range map[string]string{
		"a sample twice": head + "mori_io_x_total{a=\"b\"} 1\nmori_io_x_total{a=\"b\"} 1\n", "a foreign sample": head + "mori_io_y_total 1\n", "a bad escape": head + "mori_io_x_total{a=\"\\t\"} 1\n",
		"no value": head + "mori_io_x_total\n", "no end": head + "mori_io_x_total 1", "a raw quote": head + "mori_io_x_total{a=\"\"\"} 1\n", "a family twice": head + head,
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}
