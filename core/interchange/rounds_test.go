// SPDX-License-Identifier: MIT

package interchange

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"mori/core/device"
	"mori/core/fabric"
	"mori/native/gpu/gputest"
)

// roundsEnv is how many rounds TestManyRounds makes; on a machine that has time for them, 100000
// and more.
const roundsEnv = "MORI_INTERCHANGE_ROUNDS"

func manyRounds(t *testing.T, few uint64) uint64 {
	text := os.Getenv(roundsEnv)
	if text == "" {
		return few
	}
	n, err := strconv.ParseUint(text, 10, 40)
	if err != nil || n == 0 {
		t.Fatalf("%s=%s: %v", roundsEnv, text, err)
	}
	return n
}

// TestManyRounds: kernels that spin for all rounds, with every byte of each that the receiver's
// kernel can look at.
func TestManyRounds(t *testing.T) {
	for _, dev := range []string{"emu0", "proxy"} {
		t.Run(dev, func(t *testing.T) {
			rounds := manyRounds(t, 2000)
			p := newPair(t, dev, "cpu", "cpu", 1024)
			if wrong := p.run(rounds, 42, 42); wrong != 0 {
				t.Errorf("%d bytes are wrong after %d rounds", wrong, rounds)
			}
		})
	}
}

// TestNothingWaitsForSpinningKernels: while kernels run, nothing is asked of the driver that it may
// do only once they have ended.
func TestNothingWaitsForSpinningKernels(t *testing.T) {
	gputest.NeedEmulated(t)
	gpu := onGPU(t)
	for _, dev := range devices {
		t.Run(dev, func(t *testing.T) {
			p := newPair(t, dev, gpu, gpu, 1024)
			accept := gputest.Refuse(t)
			wrong := p.run(20, 42, 42)
			accept()
			if wrong != 0 {
				t.Errorf("%d bytes are wrong", wrong)
			}
		})
	}
}

// TestRefusalIsSeen: a step that does need the driver's memory fails while it refuses, so that the
// test above can fail.
func TestRefusalIsSeen(t *testing.T) {
	gputest.NeedEmulated(t)
	gpu := onGPU(t)
	s, err := Open(Options{Device: "emu0", GPU: gpu})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err = s.Discover(); err != nil {
		t.Fatal(err)
	}
	if _, err = s.OpenDevice(); err != nil {
		t.Fatal(err)
	}
	accept := gputest.Refuse(t)
	_, err = s.Endpoint()
	accept()
	if err == nil {
		t.Error("an endpoint was made without memory")
	}
}

// TestFlagsAreInHostMemory: what kernels wait for is in the host's memory, which copies need not
// pass to.
func TestFlagsAreInHostMemory(t *testing.T) {
	gpu := onGPU(t)
	for _, dev := range devices {
		p := newPair(t, dev, gpu, gpu, 64)
		v, err := p.a.View()
		p.must(err)
		at, err := device.Lookup(v.Words)
		p.must(err)
		if at.Kind != device.Host {
			t.Errorf("%s: the words at %#x are %+v", dev, v.Words, at)
		}
	}
}

// TestKernelsLeaveRoom: a launch that would take most of a GPU is refused.
func TestKernelsLeaveRoom(t *testing.T) {
	p := Puts{Path: "stores", GPUs: [2]string{"cpu", "cpu"}, Bytes: 8, Count: 8, Blocks: mostBlocks + 1, Threads: 4}
	if took, err := Measure(t.Context(), p); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("%v, %v", took, err)
	}
}
