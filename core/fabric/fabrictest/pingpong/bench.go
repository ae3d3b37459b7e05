// SPDX-License-Identifier: MIT

package pingpong

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"mori/core/fabric"
)

// A Config is what Bench measures.
type Config struct {
	Provider func() fabric.Provider

	// Command is a process that calls Serve with the provider, its standard input and output, and
	// args, which name the endpoint type.
	Command func(args ...string) *exec.Cmd

	// Reference is the provider of fi_pingpong to compare EPRDM with: "tcp;ofi_rxm". ReferenceMsg is
	// that of EPMsg; empty: none.
	Reference, ReferenceMsg string
}

// sizes are those of Bench, with the messages that fi_pingpong moves for each.
var sizes = []struct {
	name        string
	size, iters int
}{
	{"64B", 64, 5000}, {"4KiB", 4 << 10, 5000}, {"64KiB", 64 << 10, 2000}, {"256KiB", 256 << 10, 1000}, {"1MiB", 1 << 20, 500},
	{"4MiB", 4 << 20, 120},
}

// deadline bounds one endpoint type.
const deadline = 5 * time.Minute

// Bench measures messages of several sizes between endpoints of both types in two processes: us is
// the time of a transfer. Where fi_pingpong is here it runs beside, and takes ref-us; of-ref is
// that by ours: above 1, ours is faster.
func Bench(b *testing.B, cfg Config) {
	for _, c := range []struct{ name, reference string }{{"msg", cfg.ReferenceMsg}, {"rdm", cfg.Reference}} {
		b.Run(c.name, func(b *testing.B) {
			s := start(b, cfg, c.name)
			for _, z := range sizes {
				var theirs float64
				b.Run(z.name, func(b *testing.B) {
					us := s.measure(b, z.size)
					b.SetBytes(int64(z.size))
					b.ReportMetric(us, "us")
					if theirs == 0 && b.N > 1 && c.reference != "" {
						theirs, _ = Run(b, c.reference, c.name, z.size, z.iters)
					}
					if theirs > 0 {
						b.ReportMetric(theirs, "ref-us")
						b.ReportMetric(theirs/us, "of-ref")
					}
				})
			}
		})
	}
}

// A session is the asking side with the other process.
type session struct {
	*side
	ctx context.Context
	in  *json.Encoder
	out *json.Decoder
}

// start makes both processes and connects them.
func start(b *testing.B, cfg Config, epType string) *session {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	b.Cleanup(cancel)
	cmd := cfg.Command(epType)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	s := &session{ctx: ctx, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	p := cfg.Provider()
	info, err := infoOf(ctx, p, []string{epType})
	must(b, err)
	s.side, err = newSide(ctx, p, info)
	must(b, err)
	b.Cleanup(func() {
		must(b, in.Close())
		t := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		defer t.Stop()
		_, _ = io.Copy(io.Discard, out) // until it goes
		must(b, errors.Join(cmd.Wait(), s.Close()))
	})
	var to fabric.Addr
	must(b, s.out.Decode(&to))
	s.connect(b, info.EPType, to)
	must(b, s.Start(sizes[len(sizes)-1].size))
	s.ready(b)
	return s
}

func (s *session) connect(b *testing.B, t fabric.EPType, to fabric.Addr) {
	b.Helper()
	first := begin{Most: sizes[len(sizes)-1].size}
	if t == fabric.EPRDM {
		must(b, s.address(to))
		name, err := s.EP.Name()
		must(b, err)
		first.Name = name
		must(b, s.in.Encode(first))
		return
	}
	must(b, s.in.Encode(first))
	_, err := s.EP.(fabric.Connector).Connect(s.ctx, to, nil)
	must(b, err)
}

// ready waits for the other process.
func (s *session) ready(b *testing.B) {
	b.Helper()
	var word string
	must(b, s.out.Decode(&word))
}

// measure moves b.N messages each way, after some to warm up, and returns the microseconds of a
// transfer.
func (s *session) measure(b *testing.B, size int) float64 {
	b.Helper()
	warm := 50
	must(b, s.in.Encode(round{size, warm + b.N}))
	must(b, s.Ping(s.ctx, size, warm))
	b.ResetTimer()
	t := time.Now()
	must(b, s.Ping(s.ctx, size, b.N))
	d := time.Since(t)
	b.StopTimer()
	s.ready(b)
	return d.Seconds() * 1e6 / float64(2*b.N)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(fmt.Errorf("ping-pong: %w", err))
	}
}
