// SPDX-License-Identifier: MIT

// Package rma has the one-sided operations: put, get, their strided forms, atomics, and puts with a
// signal.
//
// If the memory of the PE is mapped here, an operation is a copy or an atomic of package access,
// and wakes the PE if it waits. Otherwise package remote sends it. Order has Fence and Quiet.
package rma
