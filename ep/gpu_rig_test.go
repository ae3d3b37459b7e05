// SPDX-License-Identifier: MIT

package ep

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/ep/internal/plan/plantest"
	"mori/native/gpu/gputest"
	"mori/shmem"
)

// A gpuJob has an op on a GPU, and one on host memory to compare with. Each rank of a test has one.
type gpuJob struct {
	host, gpu *Op
	world     *shmem.World
	dev       *device.Device
	stream    *device.Stream
	room      *device.Memory // for the arguments of a round
	taken     uint64
	held      [][]byte // memory that calls of a round name by address
}

// onGPUs makes the ops on cfg.WorldSize ranks of this process, on as many GPUs as there are, and
// calls f on all ranks at once.
func onGPUs(t testing.TB, cfg Config, opts Options, f func(j *gpuJob) error) {
	t.Helper()
	gputest.Need(t)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if opts.Timeout == 0 {
		opts.Timeout = 20 * time.Second
	}
	errs := make([]error, cfg.WorldSize)
	var wait sync.WaitGroup
	for rank, g := range bootstrap.Local(cfg.WorldSize) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			errs[rank] = runOnGPU(g, all[rank%len(all)], place{node: "node"}, cfg, opts, f)
		}()
	}
	wait.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A place has the host of a rank, and the NIC that its kernels post to; "": the proxy.
type place struct{ node, nic string }

func gpuWorld(g bootstrap.Group, d *device.Device, at place) (*shmem.World, error) {
	return shmem.Init(context.Background(), g, shmem.Config{Device: d, HeapSize: 16 << 20, Timeout: 20 * time.Second, NodeID: at.node, NIC: at.nic, Host: "127.0.0.1"})
}

func runOnGPU(g bootstrap.Group, d *device.Device, at place, cfg Config, opts Options, f func(j *gpuJob) error) (err error) {
	cfg.Rank = g.Rank()
	w, err := gpuWorld(g, d, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Finalize(context.Background())) }()
	j := &gpuJob{world: w, dev: d}
	if j.room, err = d.Alloc(1 << 20); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.room.Close()) }()
	if j.stream, err = d.NewStream(device.Normal); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stream.Close()) }() // after the op, which uses it in Close
	if j.gpu, err = New(w, cfg, opts); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.gpu.Close()) }()
	opts.Host = true
	if j.host, err = New(w, cfg, opts); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.host.Close()) }()
	defer func() { err = errors.Join(err, j.settle()) }()
	j.gpu.SetStream(j.stream.Handle())
	return f(j)
}

// settle waits for the stream, and makes the memory of give free again. It frees no device memory:
// drivers would wait for the whole device, where another rank's kernel may wait for this rank.
func (j *gpuJob) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	j.taken = 0
	err := j.stream.Wait(ctx)
	clear(j.held)
	j.held = j.held[:0]
	return err
}

// hold returns the address of b, which stays alive until settle; 0 if b is empty.
func (j *gpuJob) hold(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	j.held = append(j.held, b)
	return memory.AddrOf(b)
}

// give returns the address of a copy of b on the GPU, until settle; 0 if b is empty.
func (j *gpuJob) give(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	at := j.room.Addr() + j.taken
	j.taken += (uint64(len(b)) + plan.Alignment - 1) / plan.Alignment * plan.Alignment
	if j.taken > j.room.Bytes() {
		panic("a round needs more memory")
	}
	if err := j.stream.Copy(at, j.hold(b), uint64(len(b))); err != nil {
		panic(err)
	}
	return at
}

// read waits for the stream and returns n bytes of the GPU.
func (j *gpuJob) read(addr, n uint64) []byte {
	b := make([]byte, n)
	if n == 0 {
		return b
	}
	if err := j.stream.Copy(memory.AddrOf(b), addr, n); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := j.stream.Wait(ctx); err != nil {
		panic(err)
	}
	return b
}

// same compares n bytes of a region of both ops.
func (j *gpuJob) same(what string, region Region, n uint64) error {
	want := memory.Bytes(j.host.Base()+region.Offset, n)
	got := j.read(j.gpu.Base()+region.Offset, n)
	if !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				return fmt.Errorf("%s: byte %d of %d is %#x on the GPU, and %#x on the host", what, i, n, got[i], want[i])
			}
		}
	}
	return nil
}

// A round has the arguments that are the same on all ranks.
type round struct {
	hidden           int
	dtype, out       DType
	routing          plantest.Routing
	scales, weights  bool
	split, replay    bool
	inPlace, through bool // through: the weights come back
	weighted         bool
}

func drawRound(r *rand.Rand, cfg Config) round {
	types := []DType{BFloat16, Float32, Float8E4M3FN, Float8E4M3FNUZ}
	d := round{hidden: 1 + r.IntN(cfg.HiddenDim), dtype: types[r.IntN(4)], out: types[r.IntN(4)], routing: plantest.Routings[r.IntN(len(plantest.Routings))],
		scales: r.IntN(2) == 0, weights: r.IntN(3) > 0, split: r.IntN(2) == 0, replay: r.IntN(4) == 0, inPlace: r.IntN(3) == 0,
		through: r.IntN(2) == 0, weighted: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		d.hidden = max(16, d.hidden/16*16) // whole chunks
	}
	if cfg.QuantType.Blockwise() {
		d.out, d.inPlace = BFloat16, false
	}
	d.weighted = d.weighted && d.weights
	return d
}

// numbers returns n elements of a type: random bytes, or whole numbers of 0 to 3, whose sums are
// the same in any order.
func numbers(r *rand.Rand, n int, t DType, whole bool) []byte {
	if !whole || t != Float32 && t != BFloat16 {
		return randomBytes(r, n*int(t.Size()))
	}
	b := make([]byte, 0, n*4)
	for range n {
		bits := math.Float32bits(float32(r.IntN(4)))
		if t == BFloat16 {
			b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16))
		} else {
			b = binary.LittleEndian.AppendUint32(b, bits)
		}
	}
	return b
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
