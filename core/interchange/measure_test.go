// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
)

// measures are few puts by each path, whose bytes Measure compares.
func measures(t *testing.T, gpu string, threads uint32) {
	for _, path := range []string{"stores", "proxy:shm", "proxy:tcp", "emu0", "emu0:bnxt", "emu0:ionic2"} {
		for name, each := range map[string]bool{"each": true, "all": false} {
			t.Run(path+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				p := Puts{Path: path, GPUs: [2]string{gpu, gpu}, Bytes: 24, Count: 300, Threads: threads, Each: each}
				took, err := Measure(ctx, p)
				if err != nil || took <= 0 {
					t.Errorf("%v, %v", took, err)
				}
				if path == "proxy:shm" || path == "proxy:tcp" {
					p.Host = true
					if took, err = Measure(ctx, p); err != nil || took <= 0 {
						t.Errorf("by the host: %v, %v", took, err)
					}
				}
			})
		}
	}
}

func TestMeasureOnCPU(t *testing.T) { measures(t, "cpu", 4) }

func TestMeasureOnGPU(t *testing.T) { measures(t, onGPU(t), 8) }

func TestMeasureRefuses(t *testing.T) {
	good := Puts{Path: "proxy:shm", GPUs: [2]string{"cpu", "cpu"}, Bytes: 8, Count: 1, Threads: 4}
	for what, spoil := range map[string]func(*Puts){
		"no bytes":                func(p *Puts) { p.Bytes = 0 },
		"no puts":                 func(p *Puts) { p.Count = 0 },
		"no threads":              func(p *Puts) { p.Threads = 0 },
		"part of a warp":          func(p *Puts) { p.Threads = 3 },
		"too many threads":        func(p *Puts) { p.Threads = 512 },
		"more than any memory":    func(p *Puts) { p.Count, p.Bytes = 1<<30, 1<<30 },
		"stores of half a word":   func(p *Puts) { p.Path, p.Bytes = "stores", 12 },
		"a host that has no NIC":  func(p *Puts) { p.Path, p.Host = "emu0", true },
		"a processor that is not": func(p *Puts) { p.GPUs[1] = "abacus" },
		"a device that is not":    func(p *Puts) { p.Path = "" },
		"a ring beyond its count": func(p *Puts) { p.Blocks = 1 << 20 },
	} {
		p := good
		spoil(&p)
		if took, err := Measure(context.Background(), p); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: %v, %v", what, took, err)
		}
	}
}

// TestWrongBytesAreSeen: what Measure compares is compared.
func TestWrongBytesAreSeen(t *testing.T) {
	sent := pattern(1000)
	got := pattern(1000)
	if err := same("here", got, sent); err != nil {
		t.Error(err)
	}
	got[999]++
	if err := same("here", got, sent); !errors.Is(err, ErrWrong) {
		t.Errorf("a wrong byte: %v", err)
	}
}
