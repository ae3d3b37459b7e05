// SPDX-License-Identifier: MIT

package verbs

import (
	"testing"

	"mori/core/fabric"
)

// blocks is an op of so many blocks of memory, every second one at either end.
func blocks(kind fabric.OpKind, local *memory, key uint64, count, size uint64) fabric.Op {
	op := fabric.Op{Kind: kind, Seg: local.seg(0, size), RSeg: fabric.RSeg{Len: size, Key: key}}
	for i := uint64(1); i < count; i++ {
		op.More = append(op.More, local.seg(2*i*size, size))
		op.RMore = append(op.RMore, fabric.RSeg{Addr: 2 * i * size, Len: size, Key: key})
	}
	return op
}

// round submits ops and takes their ends.
func (e *end) round(tb testing.TB, ops []fabric.Op, done []fabric.Completion) {
	if n, err := e.ep.Submit(ops); n != len(ops) || err != nil {
		tb.Fatal(n, err)
	}
	for left := len(ops); left > 0; {
		n, err := e.cq.Wait(e.ctx, done)
		if err != nil {
			tb.Fatal(err)
		}
		left -= n
	}
}

// Ops between registered regions allocate nothing once the endpoint has seen such, whether they are
// short, of blocks, or bring remote data.
func TestOpsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newEnds(t, way{Settings: Settings{QPs: 2}})
	const count, size = 64, 4 << 10
	local, remote := a.memory(t, 2*count*size), b.memory(t, 2*count*size)
	key := a.imports(t, remote.mr)
	notified := local.write(size, key)
	notified.Flags = fabric.OpRemoteData
	done, heard := make([]fabric.Completion, 8), make([]fabric.Completion, 8)
	for name, op := range map[string]fabric.Op{
		"write": local.write(size, key), "read": local.read(size, key), "short write": local.write(8, key),
		"write of blocks": blocks(fabric.OpWrite, local, key, count, size), "read of blocks": blocks(fabric.OpRead, local, key, count, size),
		"write with remote data": notified,
	} {
		ops := []fabric.Op{op}
		once := func() {
			a.round(t, ops, done)
			if op.Flags != 0 {
				if _, err := b.cq.Wait(b.ctx, heard); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 300 { // also the frames that give credits back
			once()
		}
		if n := testing.AllocsPerRun(100, once); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
