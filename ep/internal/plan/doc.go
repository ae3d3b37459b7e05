// SPDX-License-Identifier: MIT

// Package plan has the arithmetic of dispatch and combine: numbers in, numbers out. It has no
// clock, no goroutine and no I/O.
//
//   - Config is what all ranks of an op agree on. Its methods give the sizes that follow from it.
//   - Layout says where each region lies in the symmetric memory of an op.
//   - Plan has the rows that the tokens of one rank become, and where they go.
//   - CountMatrix has how many rows each rank sends to each other. It decides which ranks may send.
//   - Config.PackExperts groups received rows by expert.
//   - Signature is a number by which ranks notice that they made different calls.
//
// One rank's dispatch:
//
//	cfg, err := plan.ParseConfig(json)
//	layout, err := plan.NewLayout(cfg, 56)
//	p, matrix := plan.New(cfg), plan.NewCountMatrix(cfg)
//
//	err = p.Build(indices)    // the experts of my tokens, [n, TopK]: rows, blocks and counts
//	... publish p.Counts(), and gather those of each rank s in matrix.Row(s) ...
//	err = matrix.Admit()      // which ranks may send, and where each block lies
//	err = p.Place(matrix)     // the slots of my blocks
//
// The caller owns the memory of indices and maps, and the package keeps none of it. A Plan and a
// CountMatrix keep their own memory, so repeated calls allocate nothing.
//
// Kernels on GPUs plan and admit by themselves. They must get the same result as this package.
package plan
