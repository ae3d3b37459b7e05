// SPDX-License-Identifier: MIT

// Package hostmath is the arithmetic of MoE dispatch and combine on host memory: rows are moved by
// index lists ([GatherRows], [ScatterRows], [CopyRows]), summed in float32 ([SumRows],
// [SumQuantRows]), converted between element types ([Convert]), quantised in blocks ([QuantBlocks])
// and counted by expert ([CountExperts]).
//
// # Memory
//
// Memory is named by address, since most of it is other processes' memory mapped here. Nothing is
// allocated, kept or looked at after a call returns. Addresses need no alignment. That the memory
// is there, is long enough and does not change during the call is the caller's promise: the
// functions see numbers only, and a wrong one is a crash. What can be checked without touching
// memory (types, and lengths that must fit one another) is checked first, and then the error wraps
// [ErrType] or [ErrShape] and no byte has been written.
//
// Destination and sources must not overlap, but for one case: a row of [SumRows] may be written
// over one of its own sources of the same type, and [Convert] may work in place between types of
// one size.
//
// # Threads
//
// A call works on the caller's thread and starts none. Calls on disjoint destinations may run at
// the same time, so a caller that wants more threads cuts the rows among them. Nothing is written
// after a call returns, and all of it is ordered before whatever the caller publishes next.
//
// # Numbers
//
// Results are the same bit for bit on every machine: sums are made in float32 in the order of the
// table, multiplied and then added, and rounded once, to nearest even. The state of the floating
// point unit that a caller may have changed (rounding, subnormals as zero) is put aside during a
// call. The vector unit decides the speed only; [Variant] says which one is in use, chosen when the
// first call is made.
//
// # Speed
//
// One core of an AMD EPYC (Zen 4, AVX-512) against memcpy of 56 MiB in the same run, bytes read and
// written counted: rows of 14 KiB in random order are gathered at 1.0 to 1.2 of it, sums of 4 to 8
// bfloat16 rows run at 0.6 to 0.7, float32 sums at 0.65 to 0.7. These wait for memory: the same
// sums run about twice as fast from the second-level cache. Sums of float8 (0.35) and [QuantBlocks]
// (0.17) are bound by arithmetic, the latter by its exact division. go test -bench . measures all.
package hostmath
