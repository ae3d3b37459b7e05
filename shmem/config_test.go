// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/config"
	"mori/core/decode/decodetest"
	"mori/core/device"
	"mori/native/gpu/gputest"
)

// environment replaces the environment of the test.
func environment(t testing.TB, env map[string]string) {
	config.SetLookup(func(name string) (string, bool) {
		v, ok := env[name]
		if !ok && name == config.ShmemDevice {
			return "host", true // the tests may have a GPU
		}
		return v, ok
	})
	t.Cleanup(func() { config.SetLookup(nil) })
}

func TestConfigFromEnv(t *testing.T) {
	environment(t, map[string]string{"MORI_SHMEM_HEAP_SIZE": "64MiB", "MORI_SHMEM_MODE": "VMM_HEAP", "MORI_SHMEM_VMM_CHUNK_SIZE": "128M", "MORI_DISABLE_P2P": "1",
		"MORI_NODE_ID": "rack7", "MORI_BOOTSTRAP_TIMEOUT": "7", "MORI_SHMEM_DEVICE": "host", "MORI_SHMEM_HEAP_TYPE": "normal"})
	c, err := ConfigFromEnv()
	if err != nil || c.HeapSize != 64<<20 || c.Mode != VMMHeap || c.ChunkSize != 128<<20 || !c.DisableP2P || c.NodeID != "rack7" || c.Timeout != 7*time.Second || c.QPPerPE != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfigOfAnEmptyEnvironment(t *testing.T) {
	environment(t, nil)
	c, err := ConfigFromEnv()
	if err != nil || c.HeapSize > 4<<30 || c.HeapSize < 64<<20 || c.Mode != StaticHeap || c.ChunkSize != 64<<20 || c.DisableP2P || c.NodeID == "" || c.Host == "" || c.Timeout != 300*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestWrongVariablesAreDefaults(t *testing.T) {
	environment(t, nil)
	want, err := ConfigFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	environment(t, map[string]string{"MORI_SHMEM_MODE": "Vmm_Heap", "MORI_SHMEM_VMM_CHUNK_SIZE": "1M", "MORI_NUM_QP_PER_PE": "0",
		"MORI_SHMEM_TIMEOUT": "-1", "MORI_SHMEM_HEAP_TYPE": "cold"})
	c, err := ConfigFromEnv()
	if err != nil || c.HeapSize != want.HeapSize || c.Mode != StaticHeap || c.ChunkSize != 64<<20 || c.QPPerPE != 4 || c.Timeout != 300*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
}

// A program that asks for 1.5G and gets 4G would not notice.
func TestWrongSizesAreErrors(t *testing.T) {
	for _, name := range []string{"MORI_SHMEM_HEAP_SIZE", "MORI_SHMEM_VMM_CHUNK_SIZE"} {
		for _, text := range []string{"1.5G", "bogus", "-1", "banana"} {
			environment(t, map[string]string{name: text})
			_, err := ConfigFromEnv()
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s=%s: %v; want ErrInvalid that names both", name, text, err)
			}
		}
	}
}

func TestDevices(t *testing.T) {
	gputest.Need(t)
	all := gpus(t)
	for name, c := range map[string]struct {
		set  map[string]string
		want *device.Device
	}{
		"host":            {map[string]string{"MORI_SHMEM_DEVICE": "host"}, nil},
		"gpu":             {map[string]string{"MORI_SHMEM_DEVICE": "GPU"}, all[0]},
		"nothing said":    {map[string]string{"MORI_SHMEM_DEVICE": ""}, all[0]},
		"by its number":   {map[string]string{"MORI_SHMEM_DEVICE": "gpu", "MORI_SHMEM_GPU": fmt.Sprint(len(all) - 1)}, all[len(all)-1]},
		"by rank on host": {map[string]string{"MORI_SHMEM_DEVICE": "gpu", "MORI_SHMEM_GPU": "", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, all[3%len(all)]},
	} {
		environment(t, c.set)
		if cfg, err := ConfigFromEnv(); cfg.Device != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, cfg.Device, err)
		}
	}
	environment(t, map[string]string{"MORI_SHMEM_DEVICE": "gpu", "MORI_SHMEM_GPU": "77"})
	if _, err := ConfigFromEnv(); !errors.Is(err, ErrInvalid) {
		t.Errorf("GPU 77: %v", err)
	}
	environment(t, map[string]string{"MORI_SHMEM_DEVICE": "abacus"})
	if _, err := ConfigFromEnv(); !errors.Is(err, ErrInvalid) {
		t.Errorf("abacus: %v", err)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"1": 1, "4096": 4096, "1K": 1 << 10, "2kb": 2 << 10, "3KiB": 3 << 10, "4M": 4 << 20, "5 GB": 5 << 30, " 6gib ": 6 << 30, "1T": 1 << 40, "7B": 7,
	} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "K", "-1", "1.5G", "1KK", "1IB", "1KI", "1BK", "1X", "99999999999999999999", "9223372036854775807K", "0x10"} {
		if got, err := ParseSize(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %d, %v; want an error", text, got, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"4GiB", "64M", "x", "1 B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var n uint64
		var err error
		decodetest.Bounded(t, len(text), func() { n, err = ParseSize(text) })
		if (err == nil) != (n != 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	})
}

func TestHeapsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want error
	}{
		"no heap":                  {Config{}, ErrInvalid},
		"more than addresses":      {Config{HeapSize: 1 << 60}, ErrInvalid},
		"more than memory":         {Config{HeapSize: 1 << 45}, ErrNoMemory},
		"a mode that there is not": {Config{HeapSize: 1 << 20, Mode: 7}, ErrInvalid},
		"chunks of a byte":         {Config{HeapSize: 1 << 20, Mode: VMMHeap, ChunkSize: 1}, ErrInvalid},
	} {
		groups := bootstrap.Local(2)
		done := make(chan error, 2)
		for i, g := range groups {
			cfg := c.cfg
			if i == 1 { // who has done nothing wrong hears of it, too
				cfg = Config{HeapSize: 1 << 20}
			}
			cfg.Timeout = 10 * time.Second
			go func() {
				_, err := Init(context.Background(), g, cfg)
				if i == 0 && !errors.Is(err, c.want) || i == 1 && !errors.Is(err, ErrElsewhere) {
					t.Errorf("%s, PE %d: %v", name, i, err)
				}
				done <- err
			}()
		}
		for range groups {
			<-done
		}
	}
}
