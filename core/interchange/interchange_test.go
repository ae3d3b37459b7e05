// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"mori/core/config"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m, fabrictest.Main) }

// A pair is two sides that have taken all steps up to the kernels.
type pair struct {
	*testing.T
	a, b *Side
}

func (p pair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func newPair(t *testing.T, dev, gpuA, gpuB string, bytes uint64) pair {
	t.Helper()
	p := pair{T: t}
	open := func(gpu string) *Side {
		s, err := Open(Options{Device: dev, GPU: gpu, Limit: 2 * time.Minute})
		p.must(err)
		t.Cleanup(func() { p.closes(s) })
		return s
	}
	p.a, p.b = open(gpuA), open(gpuB)
	var ends [2]End
	var shown [2]Memory
	for i, s := range []*Side{p.a, p.b} {
		found, err := s.Discover()
		p.must(err)
		if len(found) == 0 || len(found[0].Ports) == 0 {
			t.Fatalf("found %+v", found)
		}
		_, err = s.OpenDevice()
		p.must(err)
		ends[i], err = s.Endpoint()
		p.must(err)
	}
	if ends[0].Number == 0 || len(ends[0].Address) == 0 {
		t.Errorf("an end is %+v", ends[0])
	}
	p.must(errors.Join(p.a.Connect(ends[1].Address), p.b.Connect(ends[0].Address)))
	for i, s := range []*Side{p.a, p.b} {
		var err error
		shown[i], err = s.Register(bytes)
		p.must(err)
	}
	p.must(errors.Join(p.a.SetPeer(shown[1].Shown), p.b.SetPeer(shown[0].Shown)))
	return p
}

func (p pair) closes(s *Side) {
	p.Helper()
	if err := s.Close(); err != nil {
		p.Error(err)
	}
}

// run runs both kernels and returns the bytes that the receiver finds wrong.
func (p pair) run(rounds uint64, sent, expected uint8) (wrong uint64) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+time.Duration(rounds)*10*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := p.b.Run(ctx, Work{Value: expected, Rounds: rounds})
		done <- err
	}()
	out, err := p.a.Run(ctx, Work{Send: true, Value: sent, Rounds: rounds})
	p.must(errors.Join(err, <-done))
	if out.Rounds != rounds || out.Kernel == "" {
		p.Errorf("%d rounds are %+v", rounds, out)
	}
	wrong, err = p.b.Verify(ctx, expected)
	p.must(err)
	return wrong
}

var devices = []string{"proxy", "proxy:tcp", "emu0", "emu0:bnxt", "emu0:ionic1", "emu0:ionic2"}

func TestInterchangeOnCPU(t *testing.T) {
	for _, dev := range devices {
		t.Run(dev, func(t *testing.T) {
			p := newPair(t, dev, "cpu", "cpu", 1024)
			if wrong := p.run(20, 42, 42); wrong != 0 {
				t.Errorf("%d bytes are wrong", wrong)
			}
		})
		t.Run(dev+", another value", func(t *testing.T) {
			p := newPair(t, dev, "cpu", "cpu", 1000)
			if wrong := p.run(1, 42, 43); wrong != 1000 {
				t.Errorf("%d of 1000 bytes are wrong, and all are", wrong)
			}
		})
	}
}

// onGPU needs a GPU, and the kernels that are compiled for it.
func onGPU(t *testing.T) string {
	t.Helper()
	gputest.Need(t)
	folder, err := filepath.Abs("../../python/mori/_kernels")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.KernelDir, folder)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Vendor == device.HIP {
		return "hip:0"
	}
	return "cuda:0"
}

func TestInterchangeOnGPU(t *testing.T) {
	gpu := onGPU(t)
	for _, dev := range devices {
		t.Run(dev, func(t *testing.T) {
			p := newPair(t, dev, gpu, gpu, 1024)
			if wrong := p.run(20, 42, 42); wrong != 0 {
				t.Errorf("%d bytes are wrong", wrong)
			}
		})
	}
}

func TestWhatIsNotThereIsRefused(t *testing.T) {
	for what, o := range map[string]Options{
		"no device":         {GPU: "cpu"},
		"no such family":    {Device: "emu0:1", GPU: "cpu"},
		"bnxt hardware":     {Device: "bnxt_re0", GPU: "cpu"},
		"no GPU":            {Device: "emu0"},
		"a GPU of a number": {Device: "emu0", GPU: "cuda:x"},
		"a CPU of a number": {Device: "emu0", GPU: "cpu:1"},
		"a short ring":      {Device: "emu0", GPU: "cpu", Log: 1},
		"no time":           {Device: "emu0", GPU: "cpu", Limit: -1},
	} {
		if s, err := Open(o); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: %v, %v", what, s, err)
		}
	}
	s, err := Open(Options{Device: "proxy:carrier", GPU: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.OpenDevice(); !errors.Is(err, ErrOrder) {
		t.Errorf("the third step first: %v", err)
	}
	if _, err = s.Discover(); err != nil {
		t.Error(err)
	}
	if _, err = s.OpenDevice(); !errors.Is(err, fabric.ErrNoData) {
		t.Errorf("a provider that is not there: %v", err)
	}
	if err = errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err = s.Discover(); !errors.Is(err, ErrOrder) {
		t.Errorf("a step after the end: %v", err)
	}
}
