// SPDX-License-Identifier: MIT

package emu_test

import (
	"errors"
	"testing"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// A bench is a NIC with one of each object, for commands to be tried on.
type bench struct {
	nic                           *emu.NIC
	pd, work, cqmem, dbr, uar, cq uint32
	mem                           []byte
}

func newBench(t *testing.T) *bench {
	t.Helper()
	nic, err := emu.New(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.Close() })
	b := &bench{nic: nic}
	if b.mem, err = sys.Alloc(3 * 4096); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.Close(); _ = sys.Free(b.mem) })
	for i, id := range []*uint32{&b.work, &b.cqmem, &b.dbr} {
		if *id, err = nic.Umem(sys.AddrOf(b.mem)+uint64(4096*i), 4096); err != nil {
			t.Fatal(err)
		}
	}
	if _, b.uar, err = nic.UAR(); err != nil {
		t.Fatal(err)
	}
	b.pd = b.made(t, &mlx5.Simple{Op: mlx5.OpAllocPD})
	b.cq = b.made(t, b.cqCommand())
	return b
}

func (b *bench) do(t *testing.T, m mlx5.Message) mlx5.Reply {
	t.Helper()
	out := make([]byte, 4112)
	if err := b.nic.Do(mlx5.Encode(m), out); err != nil {
		t.Fatal(err)
	}
	var r mlx5.Reply
	if err := mlx5.Decode(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) made(t *testing.T, m mlx5.Message) uint32 {
	t.Helper()
	r := b.do(t, m)
	if r.Status != mlx5.StatusOK || r.ID == 0 {
		t.Fatalf("%T: %+v", m, r)
	}
	return r.ID
}

func (b *bench) cqCommand() *mlx5.CreateCQ {
	return &mlx5.CreateCQ{
		Op: mlx5.OpCreateCQ, LogSize: 4, UmemValid: true, UmemID: b.cqmem, DBRUmemValid: true, DBRUmemID: b.dbr, DBRAddr: 64, UARPage: b.uar, EQN: 7,
	}
}

func (b *bench) qpCommand() *mlx5.CreateQP {
	return &mlx5.CreateQP{Op: mlx5.OpCreateQP, UmemValid: true, UmemID: b.work, QPC: mlx5.QPContext{
		PathState: mlx5.PathMigrated, PD: b.pd, UARPage: b.uar, LogSQSize: 4, RQType: mlx5.RQNone, SendCQN: b.cq, RecvCQN: b.cq,
		DBRUmemValid: true, DBRUmemID: b.dbr,
	}}
}

func (b *bench) mkeyCommand() *mlx5.CreateMKey {
	return &mlx5.CreateMKey{
		Op: mlx5.OpCreateMKey, UmemValid: true, UmemID: b.work, AccessMode: mlx5.AccessModeMTT, QPN: mlx5.AnyQPN, PD: b.pd,
		Addr: sys.AddrOf(b.mem), Bytes: 4096, LogPageSize: 12, Translations: 1, TranslationsActual: 1, LocalRead: true,
	}
}

// TestCommandsThatAreWrong changes one thing of a good command at a time.
func TestCommandsThatAreWrong(t *testing.T) {
	b := newBench(t)
	cq := func(f func(*mlx5.CreateCQ)) mlx5.Message { m := b.cqCommand(); f(m); return m }
	qp := func(f func(*mlx5.CreateQP)) mlx5.Message { m := b.qpCommand(); f(m); return m }
	key := func(f func(*mlx5.CreateMKey)) mlx5.Message { m := b.mkeyCommand(); f(m); return m }
	for name, m := range map[string]mlx5.Message{
		"an opcode that there is not":        &mlx5.Simple{Op: 0x999},
		"capabilities that there are not":    &mlx5.QueryHCACap{Op: mlx5.OpQueryHCACap, Mode: 9},
		"a protection domain that is none":   &mlx5.Simple{Op: mlx5.OpDeallocPD, ID: b.cq},
		"a protection domain of a number":    &mlx5.Simple{Op: mlx5.OpDeallocPD, ID: 1},
		"cq: memory that is not known":       cq(func(m *mlx5.CreateCQ) { m.UmemID = 1 }),
		"cq: more entries than memory":       cq(func(m *mlx5.CreateCQ) { m.LogSize = 7 }),
		"cq: huge":                           cq(func(m *mlx5.CreateCQ) { m.LogSize = 31 }),
		"cq: offset behind the memory":       cq(func(m *mlx5.CreateCQ) { m.UmemOffset = 1 << 40 }),
		"cq: record behind its memory":       cq(func(m *mlx5.CreateCQ) { m.DBRAddr = 4096 }),
		"cq: record not aligned":             cq(func(m *mlx5.CreateCQ) { m.DBRAddr = 4 }),
		"cq: record at the end of addresses": cq(func(m *mlx5.CreateCQ) { m.DBRAddr = ^uint64(7) }),
		"cq: doorbells that are none":        cq(func(m *mlx5.CreateCQ) { m.UARPage = b.pd }),
		"cq: entries of 128 bytes":           cq(func(m *mlx5.CreateCQ) { m.EntrySize = 1 }),
		"cq: compression":                    cq(func(m *mlx5.CreateCQ) { m.Compressed = true }),
		"cq: an event queue that is none":    cq(func(m *mlx5.CreateCQ) { m.EQN = 0 }),
		"qp: another service":                qp(func(m *mlx5.CreateQP) { m.QPC.Service = 3 }),
		"qp: path not migrated":              qp(func(m *mlx5.CreateQP) { m.QPC.PathState = 0 }),
		"qp: more blocks than memory":        qp(func(m *mlx5.CreateQP) { m.QPC.LogSQSize = 7 }),
		"qp: receive queue fills the memory": qp(func(m *mlx5.CreateQP) { m.QPC.RQType, m.QPC.LogRQSize, m.QPC.LogRQStride = mlx5.RQRegular, 8, 1 }),
		"qp: shared receive queue":           qp(func(m *mlx5.CreateQP) { m.QPC.RQType = 1 }),
		"qp: protection domain":              qp(func(m *mlx5.CreateQP) { m.QPC.PD = 1 }),
		"qp: send completions":               qp(func(m *mlx5.CreateQP) { m.QPC.SendCQN = 1 }),
		"qp: doorbells":                      qp(func(m *mlx5.CreateQP) { m.QPC.UARPage = 1 }),
		"qp: record":                         qp(func(m *mlx5.CreateQP) { m.QPC.DBRUmemValid = false }),
		"qp: doorbell by the device":         qp(func(m *mlx5.CreateQP) { m.QPC.SendDBRMode = 2 }),
		"mkey: no memory":                    key(func(m *mlx5.CreateMKey) { m.UmemValid = false }),
		"mkey: behind the memory":            key(func(m *mlx5.CreateMKey) { m.Bytes = 4097 }),
		"mkey: more than there is":           key(func(m *mlx5.CreateMKey) { m.Bytes = ^uint64(0) }),
		"mkey: too few translations":         key(func(m *mlx5.CreateMKey) { m.TranslationsActual = 0 }),
		"mkey: another address":              key(func(m *mlx5.CreateMKey) { m.Addr += 4096 }),
		"mkey: small pages":                  key(func(m *mlx5.CreateMKey) { m.LogPageSize = 3 }),
		"mkey: protection domain":            key(func(m *mlx5.CreateMKey) { m.PD = 0 }),
		"a queue pair that there is not":     &mlx5.Simple{Op: mlx5.Op2Err, ID: 1},
		"a key that there is not":            &mlx5.Simple{Op: mlx5.OpDestroyMKey, ID: 1},
		"a completion queue that is none":    &mlx5.Simple{Op: mlx5.OpDestroyCQ, ID: b.pd},
	} {
		if r := b.do(t, m); r.Status == mlx5.StatusOK {
			t.Errorf("%s: it was done", name)
		}
	}
	if r := b.do(t, b.qpCommand()); r.Status != mlx5.StatusOK {
		t.Errorf("a good command: %+v", r)
	}
	for _, n := range []int{0, 1, 15} {
		out := make([]byte, 16)
		if err := b.nic.Do(make([]byte, n), out); err != nil || out[0] != mlx5.StatusBadInLen {
			t.Errorf("a command of %d bytes: %v, status %#x", n, err, out[0])
		}
	}
}

// TestStates walks a queue pair through its states, and tries each transition from each of them.
func TestStates(t *testing.T) {
	b := newBench(t)
	steps := []uint32{mlx5.OpRst2Init, mlx5.OpInit2RTR, mlx5.OpRTR2RTS}
	states := []uint32{mlx5.StateRST, mlx5.StateINIT, mlx5.StateRTR, mlx5.StateRTS}
	modify := func(qpn, op uint32) mlx5.Reply {
		return b.do(t, &mlx5.ModifyQP{Op: op, QPN: qpn, QPC: mlx5.QPContext{
			PathState: mlx5.PathMigrated, MTU: 5, LogMsgMax: 30, RemoteQPN: 1, Path: mlx5.Path{Port: 1, HopLimit: 1},
		}})
	}
	stateOf := func(qpn uint32) uint32 {
		out := make([]byte, 512)
		var r mlx5.QueryQPReply
		if err := errors.Join(b.nic.Do(mlx5.Encode(&mlx5.Simple{Op: mlx5.OpQueryQP, ID: qpn}), out), mlx5.Decode(out, &r)); err != nil {
			t.Fatal(err)
		}
		return r.QPC.State
	}
	for at := range states {
		qpn := b.made(t, b.qpCommand())
		for i := range at {
			if r := modify(qpn, steps[i]); r.Status != mlx5.StatusOK {
				t.Fatalf("%s: %+v", mlx5.OpName(uint16(steps[i])), r)
			}
		}
		for i, op := range steps {
			if i == at {
				continue
			}
			if r := modify(qpn, op); r.Status != mlx5.StatusBadState {
				t.Errorf("%s in state %s: %+v", mlx5.OpName(uint16(op)), mlx5.StateName(states[at]), r)
			}
		}
		if got := stateOf(qpn); got != states[at] {
			t.Errorf("state %s, want %s", mlx5.StateName(got), mlx5.StateName(states[at]))
		}
		for _, end := range []struct{ op, want uint32 }{{mlx5.Op2Err, mlx5.StateERR}, {mlx5.Op2Rst, mlx5.StateRST}} {
			r := b.do(t, &mlx5.Simple{Op: end.op, ID: qpn})
			want := end.want
			if end.op == mlx5.Op2Err && at == 0 {
				want = mlx5.StateRST
			}
			if got := stateOf(qpn); r.Status != mlx5.StatusOK || got != want {
				t.Errorf("%s in state %s: %+v, state %s", mlx5.OpName(uint16(end.op)), mlx5.StateName(states[at]), r, mlx5.StateName(got))
			}
		}
	}
}

// TestObjectsInUse are not ended, nor is what they stand on.
func TestObjectsInUse(t *testing.T) {
	b := newBench(t)
	qpn := b.made(t, b.qpCommand())
	busy := func(op, id uint32) {
		t.Helper()
		if r := b.do(t, &mlx5.Simple{Op: op, ID: id}); r.Status != mlx5.StatusBusy {
			t.Errorf("%s: %+v", mlx5.OpName(uint16(op)), r)
		}
	}
	busy(mlx5.OpDeallocPD, b.pd)
	busy(mlx5.OpDestroyCQ, b.cq)
	for _, id := range []uint32{b.work, b.cqmem, b.dbr} {
		if err := b.nic.FreeUmem(id); !errors.Is(err, mlx5.ErrArgument) {
			t.Errorf("memory in use: %v", err)
		}
	}
	if err := b.nic.FreeUAR(b.uar); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("doorbells in use: %v", err)
	}
	for _, end := range [][2]uint32{{mlx5.OpDestroyQP, qpn}, {mlx5.OpDestroyCQ, b.cq}, {mlx5.OpDeallocPD, b.pd}} {
		if r := b.do(t, &mlx5.Simple{Op: end[0], ID: end[1]}); r.Status != mlx5.StatusOK {
			t.Errorf("%s: %+v", mlx5.OpName(uint16(end[0])), r)
		}
	}
	if err := errors.Join(b.nic.FreeUmem(b.work), b.nic.FreeUmem(b.cqmem), b.nic.FreeUmem(b.dbr), b.nic.FreeUAR(b.uar)); err != nil {
		t.Error(err)
	}
}

// TestClosedNIC refuses all, and closes once.
func TestClosedNIC(t *testing.T) {
	b := newBench(t)
	if err := errors.Join(b.nic.Close(), b.nic.Close()); err != nil {
		t.Fatal(err)
	}
	_, errUmem := b.nic.Umem(4096, 4096)
	_, _, errUAR := b.nic.UAR()
	for what, err := range map[string]error{
		"Do": b.nic.Do(make([]byte, 16), make([]byte, 16)), "Umem": errUmem, "UAR": errUAR, "FreeUmem": b.nic.FreeUmem(b.work),
		"FreeUAR": b.nic.FreeUAR(b.uar),
	} {
		if !errors.Is(err, mlx5.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDeviceLimits: sizes that no queue or region can have.
func TestDeviceLimits(t *testing.T) {
	_, dev := openNIC(t, emu.Options{})
	for _, cfg := range []mlx5.QueueConfig{{}, {SQLog: 1}, {SQLog: 16}, {SQLog: 4, CQLog: 30}, {SQLog: 4, RQLog: 16}, {SQLog: 4, Addr: 8}} {
		if q, err := dev.NewQueue(cfg); !errors.Is(err, mlx5.ErrArgument) {
			t.Errorf("%+v: %v, %v", cfg, q, err)
		}
	}
	for _, r := range [][2]uint64{{4096, 0}, {^uint64(0), 4096}} {
		if g, err := dev.Register(r[0], r[1], mlx5.AccessAll); !errors.Is(err, mlx5.ErrArgument) {
			t.Errorf("%v: %v, %v", r, g, err)
		}
	}
	q, err := dev.NewQueue(mlx5.QueueConfig{SQLog: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("close a device with a queue: %v", err)
	}
	if err := errors.Join(q.Connect(q.End(), mlx5.PathConfig{}), q.Close(), q.Close()); err != nil {
		t.Error(err)
	}
	if err := q.Connect(q.End(), mlx5.PathConfig{}); !errors.Is(err, mlx5.ErrClosed) {
		t.Errorf("connect a closed queue: %v", err)
	}
	for _, opts := range []emu.Options{{Wire: "string"}, {MTU: 1500}} {
		if n, err := emu.New(opts); !errors.Is(err, mlx5.ErrArgument) {
			t.Errorf("%+v: %v, %v", opts, n, err)
		}
	}
}
