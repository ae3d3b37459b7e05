// SPDX-License-Identifier: MIT

package shmem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/native/gpu/gputest"
)

// Lives are Worlds of processes from the beginning to an end, good or bad: this test binary again,
// which runs TestLife only.

// A life is what a process is to do.
type life struct {
	Name       string
	Meet       string // the file to meet by
	PE, NPEs   int
	Dies       int // the PE that does, in some lives
	Mode       Mode
	DisableP2P bool
	NodeID     string
	Env        []string      // beside the test's own
	Blind      int           // with Env: the PE that sees no NIC; -1: none
	GPU        bool          // the heaps are on GPUs
	Timeout    time.Duration // 0: half a minute
}

const lifeVariable = "MORI_TEST_SHMEM_LIFE"

// live runs a life in n processes and returns what each has printed and how it ended.
func live(t *testing.T, n int, l life) (said []string, ends []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.Meet, l.NPEs = filepath.Join(t.TempDir(), "meet"), n
	said, ends = make([]string, n), make([]error, n)
	var wait sync.WaitGroup
	for pe := range n {
		l := l
		if l.PE = pe; strings.Contains(l.NodeID, "%d") {
			l.NodeID = fmt.Sprintf(l.NodeID, pe)
		}
		text, _ := json.Marshal(l)
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLife$", "-test.v")
		c.Env = append(os.Environ(), lifeVariable+"="+string(text), "GORACE=atexit_sleep_ms=0") // built with -race, a process idles at its end
		if c.Env = append(c.Env, l.Env...); l.Env != nil && l.Blind == pe {
			c.Env = append(c.Env, "FAKE_VERBS_COUNT=0")
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			out, err := c.CombinedOutput()
			said[pe], ends[pe] = string(out), err
		}()
	}
	wait.Wait()
	return said, ends
}

// TestLife is a PE of live.
func TestLife(t *testing.T) {
	text := os.Getenv(lifeVariable)
	if text == "" {
		t.Skip("this is not the process of a PE")
	}
	var l life
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	g, err := bootstrap.JoinFile(ctx, l.Meet, l.PE, l.NPEs, bootstrap.Options{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Mode: l.Mode, HeapSize: 8 << 20, ChunkSize: 1 << 20, DisableP2P: l.DisableP2P, NodeID: l.NodeID, Timeout: 30 * time.Second}
	if l.GPU {
		cfg = onGPU(t, cfg)
		cfg.Device = gpus(t)[l.PE%len(gpus(t))]
	}
	if l.Timeout > 0 {
		cfg.Timeout = l.Timeout
	}
	w, err := Init(ctx, g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err = lives[l.Name](w, l)
	if l.Dies >= 0 {
		fmt.Printf("survived after %v: %v\n", time.Since(begin), err)
		begin = time.Now()
		_ = w.Finalize(ctx) // returns the fault once more
		fmt.Printf("finalized after %v\n", time.Since(begin))
		return
	}
	if err = errors.Join(err, w.Finalize(ctx)); err != nil {
		t.Fatal(err)
	}
}

// viaAll is an error unless all other PEs are reached by a transport, for this reason among others.
func viaAll(w *World, path, why string) error {
	for _, p := range w.Describe().Peers {
		if p.PE != w.pes.Me && (p.Path != path || !strings.Contains(p.Why, why)) {
			return fmt.Errorf("%+v", p)
		}
	}
	return nil
}

// lives are what there is to do, by name.
var lives = map[string]func(w *World, l life) error{
	"traffic":      traffic,
	"stream":       barriersOnStreams,
	"kernels meet": kernelsExchange,
	"by NICs":      func(w *World, l life) error { return errors.Join(viaAll(w, "verbs", ""), traffic(w, l)) },
	"no NIC": func(w *World, l life) error {
		return errors.Join(viaAll(w, "tcp", "(not on PE 1)"), traffic(w, l))
	},
	"stream alone": func(w *World, l life) error {
		if err := w.BarrierAll(); err != nil {
			return err
		}
		if w.pes.Me == 1 {
			select {
			case <-w.pes.Broken():
			case <-time.After(30 * time.Second):
			}
			return nil
		}
		err := w.BarrierOnStream(0)
		for err == nil { // until it knows
			time.Sleep(time.Millisecond)
			err = w.pes.Check()
		}
		return err
	},
	"barrier": func(w *World, l life) error {
		return errors.Join(w.BarrierAll(), dieIf(w, l), w.BarrierAll())
	},
	"malloc": func(w *World, l life) error {
		if err := errors.Join(w.BarrierAll(), dieIf(w, l)); err != nil {
			return err
		}
		_, err := w.Malloc(64)
		return err
	},
	"wait": func(w *World, l life) error {
		a, err := w.Calloc(1, 8)
		if err = errors.Join(err, w.BarrierAll(), dieIf(w, l)); err != nil {
			return err
		}
		return w.WaitUntil(a, fabric.Uint64, CmpEQ, 1)
	},
	"get": func(w *World, l life) error {
		a, err := w.Calloc(1, 1<<20)
		if err = errors.Join(err, w.BarrierAll(), dieIf(w, l)); err != nil {
			return err
		}
		b := make([]byte, 1<<20)
		defer runtime.KeepAlive(b)
		for err == nil { // without end, unless something ends it; mapped memory stays
			err = w.Get(memory.AddrOf(b), a, 1<<20, l.Dies)
		}
		return err
	},
}

func dieIf(w *World, l life) error {
	if w.pes.Me == l.Dies {
		time.Sleep(20 * time.Millisecond) // the others wait by then
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return nil
}

// traffic has each PE put to all others bytes that name it, and look for theirs.
func traffic(w *World, _ life) error {
	const size = 20000
	for round := range 3 {
		a, err := w.Malloc(uint64(w.pes.N) * size)
		if err != nil {
			return err
		}
		src := filled(size, w.pes.Me+round)
		defer runtime.KeepAlive(src)
		for pe := range w.pes.N {
			if err := w.Put(a+uint64(w.pes.Me*size), memory.AddrOf(src), size, pe); err != nil {
				return err
			}
		}
		if err := w.BarrierAll(); err != nil {
			return err
		}
		for pe := range w.pes.N {
			b := make([]byte, size)
			if err := memoryAt(w, a).Copy(memory.AddrOf(b), a+uint64(pe*size), size); err != nil {
				return err
			}
			if !bytes.Equal(b, filled(size, pe+round)) {
				return fmt.Errorf("round %d: what PE %d has put at PE %d is not there", round, pe, w.pes.Me)
			}
		}
		if err := w.Free(a); err != nil {
			return err
		}
	}
	return nil
}

func TestProcessesMoveBytes(t *testing.T) {
	for name, l := range map[string]life{
		"mapped": {}, "isolated": {Mode: Isolation}, "growing": {Mode: VMMHeap}, "not mapped": {DisableP2P: true}, "hosts": {NodeID: "node %d"},
		"GPUs": {GPU: true}, "isolated on GPUs": {GPU: true, Mode: Isolation}, "growing on GPUs": {GPU: true, Mode: VMMHeap},
	} {
		for _, n := range []int{1, 2, 4, 8} {
			if n%4 == 0 && name != "mapped" && name != "hosts" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				l := l
				if l.GPU {
					gputest.Need(t)
				}
				l.Name, l.Dies = "traffic", -1
				said, ends := live(t, n, l)
				for pe, err := range ends {
					if err != nil {
						t.Errorf("PE %d: %v\n%s", pe, err, said[pe])
					}
				}
			})
		}
	}
}

func TestKilledProcessIsNamedToAll(t *testing.T) {
	for _, where := range []string{"barrier", "malloc", "wait", "get"} {
		for name, l := range map[string]life{"mapped": {}, "hosts": {NodeID: "node %d"}, "GPUs": {GPU: true}} {
			t.Run(where+"/"+name, func(t *testing.T) {
				const n = 3
				l := l
				if l.GPU {
					gputest.Need(t)
				}
				l.Name, l.Dies = where, 1
				begin := time.Now()
				said, ends := live(t, n, l)
				for pe, err := range ends {
					switch {
					case pe == l.Dies && (err == nil || !strings.Contains(err.Error(), "killed")):
						t.Errorf("PE %d was not killed: %v\n%s", pe, err, said[pe])
					case pe != l.Dies && (err != nil || !strings.Contains(said[pe], "survived") || !strings.Contains(said[pe], "rank 1 has died")):
						t.Errorf("PE %d: %v\n%s", pe, err, said[pe])
					}
				}
				t.Logf("all of it took %v; PE 0: %s", time.Since(begin), said[0])
			})
		}
	}
}

// mappings counts those of this process, all and those of symmetric memory: the test program itself
// may have such a name, too.
func mappings(t *testing.T) (all, ours int) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n")), bytes.Count(text, []byte("memfd:mori-shmem"))
}

// Worlds that come and go leave nothing. Descriptors and goroutines are looked for by TestMain. The
// first Worlds start threads and map libraries, which stay.
func TestWorldsLeaveNothing(t *testing.T) {
	const cycles = 20
	before := 0
	for i := range len(modes) + cycles {
		if i == len(modes) {
			before, _ = mappings(t)
		}
		for _, cfg := range []Config{modes[i%3], {DisableP2P: true}, {NodeID: "node %d", Mode: Isolation}} {
			run(t, 2, cfg, func(w *World) error {
				a, err := w.Malloc(5000)
				if err != nil {
					return err
				}
				if _, err = w.Malloc(1 << 20); err != nil { // and is not freed
					return err
				}
				src := make([]byte, 5000)
				defer runtime.KeepAlive(src)
				err = errors.Join(w.Put(a, memory.AddrOf(src), 5000, 1-w.pes.Me), w.BarrierAll())
				if i%2 == 0 {
					err = errors.Join(err, w.Free(a))
				}
				return err
			})
		}
	}
	after, ours := mappings(t)
	if ours != 0 || after > before+cycles {
		t.Errorf("%d mappings before, %d after, %d of them symmetric memory", before, after, ours)
	}
}

func TestFinalizeTwice(t *testing.T) {
	run(t, 2, Config{}, func(w *World) error {
		if w.Closed() {
			t.Error("closed before Finalize")
		}
		a, err := w.Malloc(64)
		if err = errors.Join(err, w.Finalize(context.Background()), w.Finalize(context.Background())); err != nil {
			return err
		}
		if !w.Closed() || w.Ptr(a, 0) != 0 {
			t.Error("still open after Finalize")
		}
		for what, err := range map[string]error{"malloc": second(w.Malloc(8)), "free": w.Free(a), "register": w.RegisterBuffer(a, 8)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s after Finalize: %v", what, err)
			}
		}
		return nil
	})
}

func second[T any](_ T, err error) error { return err }
