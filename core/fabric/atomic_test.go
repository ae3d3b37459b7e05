// SPDX-License-Identifier: MIT

package fabric

import (
	"strings"
	"testing"
)

var allTypes = []DataType{Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64, Float32, Float64, Complex64, Complex128}

func TestDataTypes(t *testing.T) {
	sizes := []int{1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16}
	for i, d := range allTypes {
		if d.Size() != sizes[i] || strings.HasSuffix(d.String(), "?") {
			t.Errorf("%v has %d bytes, want %d", d, d.Size(), sizes[i])
		}
		if d.Integer() != (i < 8) || d.Complex() != (i >= 10) {
			t.Errorf("%v: integer %v, complex %v", d, d.Integer(), d.Complex())
		}
	}
	for _, d := range []DataType{0, dataTypeEnd, 255} {
		if d.Size() != 0 || d.String() != "type?" {
			t.Errorf("type %d is %v of %d bytes", d, d, d.Size())
		}
	}
}

// TestAtomicTable holds AtomicValid against the table as fi_atomic(3) prints it: a row for each op,
// its letters are the classes of types (i integers, f floats, c complex), its columns the kinds.
func TestAtomicTable(t *testing.T) {
	rows := []struct {
		op                         AtomicOp
		plain, fetching, comparing string
	}{
		{AtomicMin, "if", "if", ""}, {AtomicMax, "if", "if", ""},
		{AtomicSum, "ifc", "ifc", ""}, {AtomicProd, "ifc", "ifc", ""},
		{AtomicLOr, "ifc", "ifc", ""}, {AtomicLAnd, "ifc", "ifc", ""}, {AtomicLXor, "ifc", "ifc", ""},
		{AtomicBOr, "i", "i", ""}, {AtomicBAnd, "i", "i", ""}, {AtomicBXor, "i", "i", ""},
		{AtomicRead, "", "ifc", ""}, {AtomicWrite, "ifc", "ifc", ""},
		{AtomicCSwap, "", "", "ifc"}, {AtomicCSwapNE, "", "", "ifc"},
		{AtomicCSwapLE, "", "", "if"}, {AtomicCSwapLT, "", "", "if"}, {AtomicCSwapGE, "", "", "if"}, {AtomicCSwapGT, "", "", "if"},
		{AtomicMSwap, "", "", "i"},
	}
	if len(rows) != int(atomicOpEnd)-1 {
		t.Fatalf("%d rows for %d ops", len(rows), atomicOpEnd-1)
	}
	for _, row := range rows {
		for kind, classes := range map[OpKind]string{OpAtomic: row.plain, OpFetchAtomic: row.fetching, OpCompareAtomic: row.comparing, OpWrite: ""} {
			for _, d := range allTypes {
				class := "f"
				if d.Integer() {
					class = "i"
				} else if d.Complex() {
					class = "c"
				}
				if got, want := AtomicValid(kind, row.op, d), strings.Contains(classes, class); got != want {
					t.Errorf("%v %v on %v: %v, want %v", kind, row.op, d, got, want)
				}
			}
		}
		if strings.HasSuffix(row.op.String(), "?") {
			t.Errorf("op %d has no name", row.op)
		}
	}
	for _, op := range []AtomicOp{0, atomicOpEnd, 255} {
		if AtomicValid(OpFetchAtomic, op, Int32) || op.String() != "atomic?" {
			t.Errorf("op %d is %v and valid", op, op)
		}
	}
	if AtomicValid(OpAtomic, AtomicSum, 0) {
		t.Error("no type is valid")
	}
}

func TestWhatAnOpNeedsAndCounts(t *testing.T) {
	both := AccessRemoteRead | AccessRemoteWrite
	for _, c := range []struct {
		op     Op
		access Access
		event  CountEvents
	}{
		{Op{Kind: OpSend}, 0, CountSend},
		{Op{Kind: OpRecv}, 0, CountRecv},
		{Op{Kind: OpRead}, AccessRemoteRead, CountRead},
		{Op{Kind: OpWrite}, AccessRemoteWrite, CountWrite},
		{Op{Kind: OpAtomic, Atomic: &Atomic{Op: AtomicSum}}, AccessRemoteWrite, CountWrite},
		{Op{Kind: OpFetchAtomic, Atomic: &Atomic{Op: AtomicSum}}, both, CountRead},
		{Op{Kind: OpFetchAtomic, Atomic: &Atomic{Op: AtomicRead}}, AccessRemoteRead, CountRead},
		{Op{Kind: OpFetchAtomic}, both, CountRead},
		{Op{Kind: OpCompareAtomic, Atomic: &Atomic{Op: AtomicCSwap}}, both, CountRead},
		{Op{Kind: OpRemoteWrite}, 0, 0},
	} {
		if got := c.op.Access(); got != c.access {
			t.Errorf("%v needs %#x, want %#x", c.op.Kind, got, c.access)
		}
		if got := CountEventOf(c.op.Kind); got != c.event {
			t.Errorf("%v counts as %#x, want %#x", c.op.Kind, got, c.event)
		}
	}
}
