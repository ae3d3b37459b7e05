// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"mori/core/memory"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
)

// far2 are two PEs on two hosts.
var far2 = Config{NodeID: "node %d"}

// carried is how many bytes the emulated NICs of this process have carried.
func carried(t *testing.T) uint64 {
	verbstest.NeedEmulated(t)
	return verbstest.Bytes(t, 0) + verbstest.Bytes(t, 1)
}

// Puts and gets of symmetric memory, of registered memory and of any other go by the NIC.
func TestNICsCarryTheBytes(t *testing.T) {
	byNICs(t)
	const size = 1 << 20
	ways := map[string]func(w *World, at, sym, registered, any uint64) error{
		"put of symmetric memory":  func(w *World, at, sym, _, _ uint64) error { return w.Put(at, sym, size, 1) },
		"get to symmetric memory":  func(w *World, at, sym, _, _ uint64) error { return w.Get(sym, at, size, 1) },
		"put of registered memory": func(w *World, at, _, reg, _ uint64) error { return w.PutNbi(at, reg, size, 1) },
		"get to registered memory": func(w *World, at, _, reg, _ uint64) error { return w.GetNbi(reg, at, size, 1) },
		"put of any memory":        func(w *World, at, _, _, any uint64) error { return w.Put(at, any, size, 1) },
		"get to any memory":        func(w *World, at, _, _, any uint64) error { return w.Get(any, at, size, 1) },
		"put of a signal, too": func(w *World, at, sym, _, _ uint64) error {
			return w.PutSignal(at, sym, size, at+size, 1, SignalSet, 1)
		},
	}
	run(t, 2, far2, func(w *World) error {
		at, err := w.Malloc(size + 8)
		if err != nil {
			return err
		}
		sym, err := w.Malloc(size)
		if err != nil {
			return err
		}
		registered, err := w.AllocBuffer(size)
		if err != nil {
			return err
		}
		any := make([]byte, size)
		defer runtime.KeepAlive(any)
		if p := w.Describe().Peers[1-w.pes.Me]; p.Path != "verbs" || strings.Contains(p.Why, "slower") {
			t.Errorf("%+v", p)
		}
		if w.pes.Me == 0 {
			for name, way := range ways {
				before := carried(t)
				if err := errors.Join(way(w, at, sym, registered, memory.AddrOf(any)), w.Quiet()); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if moved := carried(t) - before; moved < size {
					t.Errorf("%s: NICs have carried %d bytes of %d", name, moved, size)
				}
			}
		}
		w.rendezvous(t)
		return w.FreeBuffer(registered)
	})
}

// The heap, and what it has grown by, is pinned when it is made: later no device is asked, and even
// refuses.
func TestHeapIsPinnedBeforeTheFirstPut(t *testing.T) {
	for name, cfg := range map[string]Config{"static": far2, "grows": {NodeID: "node %d", Mode: VMMHeap, ChunkSize: 1 << 20}, "isolated": {NodeID: "node %d", Mode: Isolation}} {
		t.Run(name, func(t *testing.T) {
			byNICs(t)
			verbstest.NeedEmulated(t)
			run(t, 2, cfg, func(w *World) error {
				const size = 2<<20 + 4096
				at, err := w.Malloc(size) // of two regions, if the heap grows
				if err != nil {
					return err
				}
				w.rendezvous(t)
				if w.pes.Me == 0 {
					verbstest.Fail(t, "ibv_reg_mr=12")
					before := carried(t)
					if err := errors.Join(w.Put(at, at, size, 1), w.Quiet()); err != nil {
						return err
					}
					if moved := carried(t) - before; moved < size {
						t.Errorf("NICs have carried %d bytes of %d", moved, size)
					}
					verbstest.Fail(t, "")
				}
				w.rendezvous(t)
				return w.Free(at)
			})
		})
	}
}

// NICs that are there and do not work are found out by the trial, and all PEs go by TCP.
func TestNICsThatFailTheTrial(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T){
		"no memory is pinned":   func(t *testing.T) { verbstest.Fail(t, "ibv_reg_mr=12") },
		"no queue pair":         func(t *testing.T) { verbstest.Fail(t, "ibv_create_qp=12") },
		"no device on a look":   func(t *testing.T) { verbstest.Count(t, 0) },
		"packets do not arrive": func(t *testing.T) { verbstest.FailNext(t, verbs.OpWrite, verbs.StatusRetryExceeded) },
		"the links are down": func(t *testing.T) {
			for device := range 2 {
				verbstest.PortDown(t, device)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			environment(t, map[string]string{"FABRIC_PROVIDER": "verbs,tcp"})
			fault(t)
			run(t, 3, far2, func(w *World) error {
				for pe, p := range w.Describe().Peers {
					if pe != w.pes.Me && (p.Path != "tcp" || !strings.Contains(p.Why, "verbs: ")) {
						t.Errorf("%+v", p)
					}
				}
				return traffic(w, life{})
			})
		})
	}
}

// A PE without a NIC does not break the others: all go by TCP, and each says who is why.
func TestOnePEHasNoNIC(t *testing.T) {
	verbstest.NeedEmulated(t)
	said, ends := live(t, 3, life{Name: "no NIC", Dies: -1, NodeID: "node %d", Env: []string{"FABRIC_PROVIDER=verbs,tcp"}, Blind: 1})
	for pe := range said {
		if ends[pe] != nil {
			t.Errorf("PE %d: %v\n%s", pe, ends[pe], said[pe])
		}
	}
}

// Processes, each with NICs of its own, as they are on hosts.
func TestProcessesMoveBytesByNICs(t *testing.T) {
	verbstest.Need(t)
	said, ends := live(t, 3, life{Name: "by NICs", Dies: -1, NodeID: "node %d", Env: []string{"FABRIC_PROVIDER=verbs"}, Blind: -1})
	for pe := range said {
		if ends[pe] != nil {
			t.Errorf("PE %d: %v\n%s", pe, ends[pe], said[pe])
		}
	}
}

// A process that is killed is named to the others, whose NICs were talking to its.
func TestKilledPEOfAnotherHostIsNamed(t *testing.T) {
	verbstest.Need(t)
	for _, what := range []string{"barrier", "malloc"} {
		said, _ := live(t, 3, life{Name: what, Dies: 1, NodeID: "node %d", Env: []string{"FABRIC_PROVIDER=verbs"}, Blind: -1})
		for pe, text := range said {
			if pe != 1 && (!strings.Contains(text, "survived") || !strings.Contains(text, "rank 1")) {
				t.Errorf("%s: PE %d: %s", what, pe, text)
			}
		}
	}
}

// A link that goes down ends what is under way in an error that names the PE, and nothing hangs.
// What comes later goes by another link, or by the same one when it is up again.
func TestLinkThatGoesDownIsNamed(t *testing.T) {
	for name, down := range map[string]int{"one of two": 1, "both": 2} {
		t.Run(name, func(t *testing.T) {
			byNICs(t)
			verbstest.NeedEmulated(t)
			run(t, 2, far2, func(w *World) error {
				at, err := w.Malloc(1 << 20)
				if err != nil {
					return err
				}
				put := func() error { return errors.Join(w.Put(at, at, 1<<20, 1), w.Quiet()) }
				w.rendezvous(t)
				if w.pes.Me == 0 {
					var up []func()
					for device := range down {
						up = append(up, verbstest.PortDown(t, device))
					}
					failed := put()
					for deadline := time.Now().Add(10 * time.Second); down == 2 && failed == nil && time.Now().Before(deadline); {
						failed = put()
					}
					if (down == 2 || failed != nil) && (!errors.Is(failed, ErrUnreachable) || !strings.Contains(failed.Error(), "PE 1")) {
						t.Errorf("puts with %d links down: %v", down, failed) // with one of two down, the connection may be another one before the first put
					}
					if down == 2 {
						for _, f := range up {
							f()
						}
					}
					for deadline := time.Now().Add(10 * time.Second); failed != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
						failed = put()
					}
					if failed != nil {
						t.Errorf("puts with a link again: %v", failed)
					}
				}
				w.rendezvous(t)
				return w.Free(at)
			})
		})
	}
}

// Heaps that together are more than the node's memory are not pinned: they would take all of it at
// once.
func TestHeapsThatAreTooMuchToPin(t *testing.T) {
	byNICs(t)
	environment(t, map[string]string{"FABRIC_PROVIDER": "verbs,tcp"})
	limit, _ := heap.MemoryLimit(os.DirFS("/"))
	if limit == 0 {
		t.Skip("nothing here tells how much memory there is")
	}
	for mode, want := range map[Mode]string{StaticHeap: "tcp", VMMHeap: "verbs"} {
		run(t, 3, Config{NodeID: "a|a|b", Mode: mode, HeapSize: arena.RoundUp(limit/2+1, 1<<20), ChunkSize: 1 << 20}, func(w *World) error {
			for _, p := range w.Describe().Peers {
				if p.Node == w.cfg.NodeID {
					continue
				}
				if p.Path != want || want == "tcp" && !strings.Contains(p.Why, "MORI_SHMEM_MODE") {
					t.Errorf("%v: %+v", mode, p)
				}
			}
			return w.BarrierAll()
		})
	}
}

func TestBuffers(t *testing.T) {
	for _, name := range []string{"static heap", "other host by NICs"} {
		t.Run(name, func(t *testing.T) {
			if name != "static heap" {
				byNICs(t)
			}
			run(t, 2, paths[name], func(w *World) error {
				a, err := w.AllocBuffer(5000)
				if err != nil {
					return err
				}
				if got := memory.Bytes(a, 5000); got[0] != 0 || got[4999] != 0 {
					t.Error("a buffer is not zero at first")
				}
				bad := allRefused([]refusal{
					{"of no bytes", ErrInvalid, func() error { _, err := w.AllocBuffer(0); return err }},
					{"registered again", ErrInvalid, func() error { return w.RegisterBuffer(a+100, 100) }},
					{"deregistered", ErrInvalid, func() error { return w.DeregisterBuffer(a, 8192) }},
					{"freed in the middle", ErrInvalid, func() error { return w.FreeBuffer(a + 100) }},
				})
				if n := w.Describe().Heap.Registered; n != 0 {
					t.Errorf("%d buffers are registered", n)
				}
				if _, err := w.AllocBuffer(1 << 20); err != nil { // which Finalize frees
					return err
				}
				return errors.Join(bad, w.FreeBuffer(a))
			})
		})
	}
}

// Who sees the signal sees the bytes, many or few, wherever they were put from: the NIC has
// reported that they are there before the signal goes. Delays have what is not waited for come
// late.
func TestSignalComesAfterTheBytesOfNICs(t *testing.T) {
	const most, sig, ack = 1 << 20, 1 << 20, 1<<20 + 128
	for _, seed := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("delays of seed %d", seed), func(t *testing.T) {
			byNICs(t)
			if seed > 0 {
				verbstest.NeedEmulated(t)
				verbstest.Delay(t, seed)
			}
			run(t, 2, far2, func(w *World) error {
				at, err := w.Malloc(most + 256)
				if err != nil {
					return err
				}
				own, err := w.Malloc(most)
				if err != nil {
					return err
				}
				any := make([]byte, most)
				defer runtime.KeepAlive(any)
				for round := uint64(1); round <= 60; round++ {
					n := []uint64{8, 4096, 8192, 100_000, most}[round%5]
					if w.pes.Me == 0 {
						from := []uint64{own, memory.AddrOf(any)}[round%2]
						fill(from, n, round)
						put := []func(dest, src, n, sig, value uint64, op SignalOp, pe int) error{w.PutSignal, w.PutSignalNbi}[round/2%2]
						if err = put(at+most-n, from, n, at+sig, 1, SignalAdd, 1); err == nil {
							err = w.Quiet()
						}
						if err == nil {
							_, err = w.SignalWaitUntil(at+ack, CmpEQ, round)
						}
					} else if _, err = w.SignalWaitUntil(at+sig, CmpEQ, round); err == nil {
						for i, b := range memory.Bytes(at+most-n, n) {
							if b != byte(round) {
								return fmt.Errorf("round %d: the signal was there before byte %d of %d", round, i, n)
							}
						}
						err = w.SignalSet(at+ack, round, 0)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func fill(at, n, value uint64) {
	for i := range memory.Bytes(at, n) {
		memory.Bytes(at, n)[i] = byte(value)
	}
}

// Config.QPPerPE is how many queue pairs a PE has for each other one.
func TestQueuePairsForEachPE(t *testing.T) {
	byNICs(t)
	verbstest.NeedEmulated(t)
	have := map[int]int{}
	for _, qps := range []int{1, 5} {
		run(t, 3, Config{NodeID: "node %d", QPPerPE: qps}, func(w *World) error {
			w.rendezvous(t)
			if w.pes.Me == 0 {
				have[qps] = verbstest.Objects(t)
			}
			w.rendezvous(t)
			return nil
		})
	}
	if more, want := have[5]-have[1], (5-1)*3*2; more < want { // and what goes with each
		t.Errorf("5 queue pairs in place of 1 are %d more objects among 3 PEs, want %d at least", more, want)
	}
}
