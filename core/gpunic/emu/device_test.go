// SPDX-License-Identifier: MIT

package emu_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
	"mori/core/internal/sys"
	"mori/core/internal/sys/thread"
)

// A distantMemory is bytes that this process has no pointer to, as those of a GPU: its addresses
// are mapped to nothing.
type distantMemory struct {
	begin uint64
	mu    sync.Mutex
	b     []byte
	fail  bool
}

func (m *distantMemory) at(addr uint64, n int) ([]byte, error) {
	if m.fail || addr < m.begin || addr+uint64(n) > m.begin+uint64(len(m.b)) {
		return nil, syscall.EFAULT
	}
	return m.b[addr-m.begin:][:n], nil
}

func (m *distantMemory) Read(addr uint64, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, err := m.at(addr, len(b))
	copy(b, from)
	return err
}

func (m *distantMemory) Write(addr uint64, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	to, err := m.at(addr, len(b))
	copy(to, b)
	return err
}

// see copies n bytes from offset at on.
func (m *distantMemory) see(at, n int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.b[at : at+n])
}

// TestDistantMemory registers it and reaches it by writes, reads and atomics.
func TestDistantMemory(t *testing.T) {
	a, b := pair(t, setup{})
	far := &distantMemory{begin: 1 << 45, b: make([]byte, 16<<10)}
	remove := b.nic.AddMemory(far.begin, uint64(len(far.b)), far)
	defer remove()
	r, err := b.dev.Register(far.begin+100, 10000, mlx5.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	there := func(at uint64) mlx5test.Span { return mlx5test.Span{Addr: r.View().Addr + at, Key: r.View().RKey} }
	step := func(at uint64, err error) {
		t.Helper()
		if err == nil {
			err = a.post.Until(at+1, patience)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range a.Mem[:9000] {
		a.Mem[i] = byte(i * 3)
	}
	step(a.post.Write(a.Span(0, 9000), there(4), signalled))
	if !bytes.Equal(far.see(104, 9000), a.Mem[:9000]) {
		t.Error("write: other bytes came")
	}
	step(a.post.Read(there(4), a.Span(10000, 9000), signalled))
	if !bytes.Equal(a.Mem[10000:19000], a.Mem[:9000]) {
		t.Error("read: other bytes came")
	}
	old := binary.LittleEndian.Uint64(far.see(104, 8))
	step(a.post.Atomic(mlx5.OpFetchAdd, mlx5.Atomic{Width: 8, Swap: 3}, there(4), a.Span(20000, 8), signalled))
	if got := binary.LittleEndian.Uint64(a.Mem[20000:]); got != old || binary.LittleEndian.Uint64(far.see(104, 8)) != old+3 {
		t.Errorf("atomic: %#x was there, want %#x", got, old)
	}
	far.mu.Lock()
	far.fail = true
	far.mu.Unlock()
	if _, err := a.post.Write(a.Span(0, 8), there(4), 0); err != nil {
		t.Fatal(err)
	}
	fails(t, a.post, mlx5.SyndromeRemoteAccess)
}

// A scattering Cmd has queue pairs put small results into completion entries, as libmlx5's do
// unless a variable forbids it.
type scattering struct{ mlx5.Cmd }

func (s scattering) Do(in, out []byte) error {
	if mlx5.OpOf(in) == mlx5.OpCreateQP {
		var m mlx5.CreateQP
		if err := mlx5.Decode(in, &m); err != nil {
			return err
		}
		m.QPC.ScatterReq = mlx5.ScatterToCQE32
		in = mlx5.Encode(&m)
	}
	return s.Cmd.Do(in, out)
}

// TestResultsInCompletions: a setup that leaves scatter-to-CQE on gets small results there and not
// in memory, so that who forgets to turn it off sees it; larger ones go to memory.
func TestResultsInCompletions(t *testing.T) {
	nic, err := emu.New(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := mlx5.Open(scattering{nic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	a := newSide(t, nic, dev, mlx5.QueueConfig{SQLog: 4}, 4096, mlx5.AccessAll)
	b := newSide(t, nic, dev, mlx5.QueueConfig{SQLog: 4}, 4096, mlx5.AccessAll)
	mlx5test.Connect(t, &a.End, &b.End, mlx5.PathConfig{})
	copy(b.Mem, "sixteen bytes...and more than thirty-two of them")
	for _, n := range []int{16, 40} {
		at, err := a.post.Read(b.Span(0, 0), a.Span(0, n), signalled)
		if err != nil {
			t.Fatal(err)
		}
		entry := sys.Bytes(a.post.View.CQ+a.post.View.Polled*mlx5.CQEBytes, mlx5.CQEBytes)
		if err := a.post.Until(at+1, patience); err != nil {
			t.Fatal(err)
		}
		inMemory, inEntry := bytes.Equal(a.Mem[:n], b.Mem[:n]), bytes.Equal(entry[:min(n, 32)], b.Mem[:min(n, 32)])
		if inMemory == inEntry || inEntry != (n <= 32) {
			t.Errorf("%d bytes: in memory %v, in the entry %v", n, inMemory, inEntry)
		}
	}
}

// TestRecordBeforeEntry: a NIC that reads entries as soon as the record moves finds out who writes
// the record first.
func TestRecordBeforeEntry(t *testing.T) {
	a, b := pair(t, setup{opts: emu.Options{Chaos: emu.Chaos{Prefetch: true}}})
	sys.Store32(a.post.View.DBR+4, 1<<24) // big-endian 1
	time.Sleep(5 * time.Millisecond)
	if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled); err != nil {
		t.Fatal(err)
	}
	err := a.post.Until(1, patience)
	var w *mlx5.WorkError
	if !errors.As(err, &w) || w.Syndrome != mlx5.SyndromeOperation {
		t.Errorf("completion: %v, want %v", err, mlx5.SyndromeOperation)
	}
}

// TestRecordAfterDoorbell: a NIC that looks at the record once after a doorbell does not see what
// comes later.
func TestRecordAfterDoorbell(t *testing.T) {
	a, b := pair(t, setup{})
	a.post.NoBell = true
	if _, err := a.post.Write(a.Span(0, 8), b.Span(0, 0), signalled); err != nil {
		t.Fatal(err)
	}
	sys.Store64(a.post.View.UAR, binary.LittleEndian.Uint64(sys.Bytes(a.post.View.SQ, 8)))
	for end := time.Now().Add(patience); sys.Load64(a.post.View.UAR) != 0; thread.Yield() { // it is taken
		if time.Now().After(end) {
			t.Fatal("the doorbell is not taken")
		}
	}
	_ = a.nic.Violations() // it waits for the round in which the doorbell was taken
	sys.Store32(a.post.View.DBR+4, 1<<24)
	time.Sleep(5 * time.Millisecond)
	if _, ok := a.post.Poll(); ok {
		t.Error("the entry was carried out without a doorbell behind its record")
	}
}
