// SPDX-License-Identifier: MIT

package atomics

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/memfd"
)

// atomicKinds and everyType are what there is to go through.
var (
	atomicKinds = []fabric.OpKind{fabric.OpAtomic, fabric.OpFetchAtomic, fabric.OpCompareAtomic}
	everyType   = []fabric.DataType{fabric.Int8, fabric.Uint8, fabric.Int16, fabric.Uint16, fabric.Int32, fabric.Uint32, fabric.Int64,
		fabric.Uint64, fabric.Float32, fabric.Float64, fabric.Complex64, fabric.Complex128}
)

// everyAtomic calls fn for each op that means something and returns how many there are.
func everyAtomic(fn func(kind fabric.OpKind, op fabric.AtomicOp, dt fabric.DataType)) (n int) {
	for _, kind := range atomicKinds {
		for op := fabric.AtomicMin; op <= fabric.AtomicMSwap; op++ {
			for _, dt := range everyType {
				if fabric.AtomicValid(kind, op, dt) {
					n++
					fn(kind, op, dt)
				}
			}
		}
	}
	return n
}

// wordMemory is memory on a page boundary.
func wordMemory(t testing.TB) ([]byte, uint64) {
	m, err := sys.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Free(m); err != nil {
			t.Error(err)
		}
	})
	return m, sys.AddrOf(m)
}

// TestExecuteAgainstReference runs every op on random elements, with guards round all that may be
// written.
func TestExecuteAgainstReference(t *testing.T) {
	m, addr := wordMemory(t)
	rng := rand.New(rand.NewPCG(3, 4))
	n := everyAtomic(func(kind fabric.OpKind, op fabric.AtomicOp, dt fabric.DataType) {
		for range 60 {
			if err := executeOnce(rng, m[:256], addr, kind, op, dt); err != nil {
				t.Fatalf("%v %v of %v: %v", kind, op, dt, err)
			}
		}
	})
	if n < 200 {
		t.Errorf("%d ops: the table has more", n)
	}
}

func executeOnce(rng *rand.Rand, m []byte, addr uint64, kind fabric.OpKind, op fabric.AtomicOp, dt fabric.DataType) error {
	for i := range m {
		m[i] = byte(rng.Uint32())
	}
	size, count := dt.Size(), 1+rng.IntN(5)
	at := size * rng.IntN(4)
	operand, compare := make([]byte, 1, 256), make([]byte, 1, 256) // not aligned
	want, wantResult := bytes.Clone(m), []byte{}
	for i := range count {
		x, v, c := refRandom(rng, dt), refRandom(rng, dt), refRandom(rng, dt)
		if rng.IntN(2) == 0 {
			c = bytes.Clone(x)
		}
		copy(m[at+i*size:], x)
		copy(want[at+i*size:], refCombine(op, dt, x, v, c))
		operand, compare, wantResult = append(operand, v...), append(compare, c...), append(wantResult, x...)
	}
	operand, compare = operand[1:], compare[1:]
	result := bytes.Repeat([]byte{0xa5}, count*size+2)
	inner := result[1 : 1+count*size : 1+count*size]
	var given []byte
	if kind != fabric.OpAtomic || rng.IntN(2) == 0 {
		given = inner
	}
	if op == fabric.AtomicRead {
		operand = nil
	}
	if kind != fabric.OpCompareAtomic {
		compare = nil
	}
	Execute(kind, op, dt, addr+uint64(at), operand, compare, given)
	for i := range count {
		p := at + i*size
		if !refSame(dt, m[p:p+size], want[p:p+size]) {
			return fmt.Errorf("%x and operand %x, compared with %x, became %x and not %x", wantResult[i*size:(i+1)*size], operand, compare, m[p:p+size], want[p:p+size])
		}
		copy(want[p:p+size], m[p:])
	}
	switch {
	case !bytes.Equal(m, want):
		return errors.New("memory beside the elements changed")
	case given != nil && !bytes.Equal(inner, wantResult):
		return fmt.Errorf("the result is %x and not %x", inner, wantResult)
	case result[0] != 0xa5 || result[len(result)-1] != 0xa5:
		return errors.New("memory beside the result changed")
	}
	return nil
}

// TestAtomicReadWritesNothing reads memory that cannot be written.
func TestAtomicReadWritesNothing(t *testing.T) {
	fd, err := memfd.New("read only", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(fd) }()
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Free(m) }()
	for _, dt := range everyType {
		result := bytes.Repeat([]byte{1}, 2*dt.Size())
		Execute(fabric.OpFetchAtomic, fabric.AtomicRead, dt, sys.AddrOf(m), nil, nil, result)
		if !bytes.Equal(result, make([]byte, 2*dt.Size())) {
			t.Errorf("%v: read %x", dt, result)
		}
	}
}

// one is the element 1.
func one(dt fabric.DataType) []byte {
	if _, ok := refIntegers[dt]; ok {
		return refEncode(dt, refBool(true))
	}
	return refPutFloats(dt, 1, 0)
}

// TestExecuteIsAtomic has goroutines that add 1 to neighbouring elements of each type: with sum,
// and with a swap that they repeat.
func TestExecuteIsAtomic(t *testing.T) {
	const workers, each = 4, 30 // 120 fits an int8
	m, addr := wordMemory(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, dt := range everyType {
		clear(m)
		size := dt.Size()
		sum := func(x, v []byte) []byte { return refCombine(fabric.AtomicSum, dt, x, v, v) }
		var wg sync.WaitGroup
		for range workers {
			start(&wg, func() {
				ones := append(one(dt), one(dt)...)
				for range each {
					Execute(fabric.OpAtomic, fabric.AtomicSum, dt, addr, ones, nil, nil)
					old, was := make([]byte, size), make([]byte, size)
					Execute(fabric.OpFetchAtomic, fabric.AtomicRead, dt, addr+uint64(2*size), nil, nil, old)
					for {
						Execute(fabric.OpCompareAtomic, fabric.AtomicCSwap, dt, addr+uint64(2*size), sum(old, ones[:size]), old, was)
						if bytes.Equal(old, was) || ctx.Err() != nil {
							break
						}
						copy(old, was)
					}
				}
			})
		}
		wg.Wait()
		want := make([]byte, size)
		for range workers * each {
			want = sum(want, one(dt))
		}
		if !bytes.Equal(m[:4*size], append(bytes.Repeat(want, 3), make([]byte, size)...)) {
			t.Errorf("%v: got %x, want three times %x", dt, m[:4*size], want)
		}
	}
}

// TestExecuteBesideTheCPU adds to the same words with Execute and with the CPU's own atomics.
func TestExecuteBesideTheCPU(t *testing.T) {
	const each = 20000
	m, addr := wordMemory(t)
	var wg sync.WaitGroup
	for range 2 {
		start(&wg, func() {
			operand := binary.NativeEndian.AppendUint64(nil, 3)
			for range each {
				Execute(fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64, addr, operand, nil, nil)
				Execute(fabric.OpAtomic, fabric.AtomicSum, fabric.Uint32, addr+8, operand[:4], nil, nil)
				Execute(fabric.OpAtomic, fabric.AtomicSum, fabric.Float64, addr+16, one(fabric.Float64), nil, nil)
			}
		})
		start(&wg, func() {
			for range each {
				sys.Add64(addr, 4)
				for old := sys.Load32(addr + 8); !sys.CompareAndSwap32(addr+8, old, old+4); old = sys.Load32(addr + 8) {
				}
				for old := sys.Load64(addr + 16); !sys.CompareAndSwap64(addr+16, old, old); old = sys.Load64(addr + 16) {
				}
			}
		})
	}
	wg.Wait()
	f, _ := refFloats(fabric.Float64, m[16:24])
	if a, b := binary.NativeEndian.Uint64(m), binary.NativeEndian.Uint32(m[8:]); a != 14*each || b != 14*each || f != 2*each {
		t.Errorf("got %d, %d and %v; want %d twice and %d", a, b, f, 14*each, 2*each)
	}
}

func TestAtomicAligned(t *testing.T) {
	for _, dt := range everyType {
		for addr := range uint64(64) {
			if got := Aligned(addr, dt); got != (addr%uint64(dt.Size()) == 0) {
				t.Errorf("%v at %d: %v", dt, addr, got)
			}
		}
	}
}

func TestQueryAtomic(t *testing.T) {
	valid := everyAtomic(func(kind fabric.OpKind, op fabric.AtomicOp, dt fabric.DataType) {
		if n, err := Query(kind, op, dt); n != MaxBytes/dt.Size() || err != nil {
			t.Errorf("%v %v of %v: %d, %v", kind, op, dt, n, err)
		}
	})
	got := 0
	for kind := range fabric.OpKind(12) {
		for op := range fabric.AtomicOp(24) {
			for dt := range fabric.DataType(16) {
				n, err := Query(kind, op, dt)
				if err == nil {
					got++
				} else if n != 0 || !errors.Is(err, fabric.ErrInvalid) {
					t.Errorf("%v %v of %v: %d, %v", kind, op, dt, n, err)
				}
			}
		}
	}
	if got != valid {
		t.Errorf("%d ops are there, %d mean something", got, valid)
	}
}

func TestExecuteDoesNotAllocate(t *testing.T) {
	_, addr := wordMemory(t)
	operand, compare, result := make([]byte, 64), make([]byte, 64), make([]byte, 64)
	everyAtomic(func(kind fabric.OpKind, op fabric.AtomicOp, dt fabric.DataType) {
		if n := testing.AllocsPerRun(10, func() { Execute(kind, op, dt, addr, operand, compare, result) }); n != 0 {
			t.Errorf("%v %v of %v: %v allocations", kind, op, dt, n)
		}
	})
}

func BenchmarkExecute(b *testing.B) {
	_, addr := wordMemory(b)
	for _, c := range []struct {
		op fabric.AtomicOp
		dt fabric.DataType
		n  int
	}{
		{fabric.AtomicSum, fabric.Uint64, 1}, {fabric.AtomicSum, fabric.Uint64, 512}, {fabric.AtomicSum, fabric.Float64, 512},
		{fabric.AtomicMax, fabric.Int32, 512}, {fabric.AtomicSum, fabric.Uint8, 512}, {fabric.AtomicSum, fabric.Complex128, 256},
	} {
		b.Run(fmt.Sprint(c.op, "/", c.dt, "/", c.n), func(b *testing.B) {
			operand := bytes.Repeat(one(c.dt), c.n)
			b.SetBytes(int64(len(operand)))
			for b.Loop() {
				Execute(fabric.OpAtomic, c.op, c.dt, addr, operand, nil, nil)
			}
		})
	}
}

func start(wg *sync.WaitGroup, fn func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		fn()
	}()
}
