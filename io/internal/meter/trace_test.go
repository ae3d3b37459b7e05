// SPDX-License-Identifier: MIT

package meter

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// traceEvent has the fields that a loader of the trace-event format needs.
type traceEvent struct {
	Name *string
	Ph   string
	Cat  string
	TS   *int64
	Dur  *int64
	PID  *int
	TID  *int
	Args map[string]any
}

// load reads a trace as strictly as Perfetto does: slices have names and times, phases are known,
// slices of a track nest or do not overlap, and tracks have names.
func load(t *testing.T, text []byte) []traceEvent {
	t.Helper()
	var doc struct{ TraceEvents []traceEvent }
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%v in\n%.500s", err, text)
	}
	named := map[int]string{}
	open := map[int][]int64{} // by track: the ends of the slices around the current one
	for _, e := range doc.TraceEvents {
		if e.Name == nil || e.PID == nil || e.TID == nil || e.TS == nil {
			t.Fatalf("incomplete event %+v", e)
		}
		switch e.Ph {
		case "M":
			if *e.Name == "thread_name" {
				named[*e.TID] = e.Args["name"].(string)
			}
		case "X":
			if e.Dur == nil || *e.Dur <= 0 || *e.TS <= 0 || named[*e.TID] == "" {
				t.Fatalf("slice without duration, time or track: %+v", e)
			}
			around := open[*e.TID]
			for len(around) > 0 && around[len(around)-1] <= *e.TS {
				around = around[:len(around)-1]
			}
			if n := len(around); n > 0 && *e.TS+*e.Dur > around[n-1] {
				t.Fatalf("%q ends %d µs after the slice around it", *e.Name, *e.TS+*e.Dur-around[n-1])
			}
			open[*e.TID] = append(around, *e.TS+*e.Dur)
		default:
			t.Fatalf("phase %q", e.Ph)
		}
	}
	return doc.TraceEvents
}

func TestATraceLoadsWhateverOverlaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	at := time.Unix(1_700_000_000, 123)
	paths := []*Path{{Peer: "b", Name: "shm/cma"}, {Peer: "b", Name: "tcp"}, {Peer: `"<c>\` + "\n", Name: "tcp"}}
	var all []Record
	for i := range uint64(2000) {
		at = at.Add(time.Duration(rng.IntN(3000)))
		told := time.Duration(rng.IntN(20000))
		last := time.Duration(rng.Int64N(int64(told) + 1))
		first := time.Duration(rng.Int64N(int64(last) + 1))
		all = append(all, Record{Start: at, FirstOp: first, LastOp: last, Took: told, UID: i, Total: i * 100, Bytes: i, Path: paths[rng.IntN(3)],
			Tag: []string{"", "req\x00-7"}[i%2], Code: uint32(i % 3), Read: i%5 == 0})
	}
	var out bytes.Buffer
	if err := WriteTrace(&out, 42, "me", []Traced{{"a", all[:1500]}, {"z", all[1500:]}}, name); err != nil {
		t.Fatal(err)
	}
	transfers, tracks, stages := 0, []string{}, 0
	for _, e := range load(t, out.Bytes()) {
		switch {
		case e.Cat == "transfer":
			r := all[int(e.Args["uid"].(float64))]
			if *e.TS != r.Start.UnixMicro() || e.Args["peer"] != r.Path.Peer || e.Args["path"] != r.Path.Name || (r.Tag != "") != (e.Args["tag"] == r.Tag) {
				t.Fatalf("%+v is not %+v", e, r)
			}
			if d := *e.Dur - r.Took.Microseconds(); d < 0 || d > 2 {
				t.Fatalf("%d µs for %v", *e.Dur, r.Took)
			}
			transfers++
		case e.Cat == "stage":
			stages++
		case *e.Name == "thread_name":
			tracks = append(tracks, e.Args["name"].(string))
		}
	}
	if transfers != len(all) || stages < len(all) {
		t.Errorf("%d transfers and %d stages of %d", transfers, stages, len(all))
	}
	for _, want := range []string{"a → b over shm/cma", "a → b over tcp", "z → b over tcp", "z → \"<c>\\\n over tcp", "a → b over tcp (2)"} {
		if !slices.Contains(tracks, want) {
			t.Errorf("no track %q", want)
		}
	}
}

func TestATransferOfNoTimeIsSeen(t *testing.T) {
	var out bytes.Buffer
	p := &Path{Peer: "b", Name: "tcp"}
	if err := WriteTrace(&out, 1, "me", []Traced{{"a", []Record{{Start: time.Unix(1e9, 0), Path: p}}}}, name); err != nil {
		t.Fatal(err)
	}
	if all := load(t, out.Bytes()); len(all) != 4 || *all[3].Name != "write 0 B" || *all[3].Dur != 1 {
		t.Errorf("%s", out.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestATraceThatCannotBeWrittenIsAnError(t *testing.T) {
	all := make([]Record, 1000)
	for i := range all {
		all[i] = Record{Start: time.Unix(1e9, 0), Path: &Path{Peer: "b"}, Tag: strings.Repeat("x", 64)}
	}
	if err := WriteTrace(full{}, 1, "me", []Traced{{"a", all}}, name); err == nil {
		t.Error("no error")
	}
}

func TestSizesAreReadable(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 4096: "4 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB", 5 << 30: "5 GiB", 1 << 50: "1024 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
