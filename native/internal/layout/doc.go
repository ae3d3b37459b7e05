// SPDX-License-Identifier: MIT

// Package layout compares a C header of this repository with the vendor's header that it stands
// for.
//
//	c := layout.Comparison{Ours: "abi.h", Guard: "MORI_VERBS_ABI_H", Vendor: "testdata/vendor.h"}
//	wrong, err := c.Run() // a line for each difference
//
// A header of ours declares the part of a library's binary interface that we use, so that the
// library's headers are not needed to build. Run compiles both headers with debug information. It
// compares each struct's and union's size, each member's offset and type, and each constant. Types
// are compared by what they are in memory, not by their typedefs. A member whose name begins with
// "unused" only takes room. What only the vendor's header declares is not looked at.
//
// Compile compiles C or C++ sources that include our header with the vendor's header in its place:
// prototypes agree if both compile.
package layout
