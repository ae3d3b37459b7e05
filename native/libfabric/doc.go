// SPDX-License-Identifier: MIT

// Package libfabric wraps libfabric, version 1.17 or newer, and loads it when it is first needed.
// It does not link against it: [Load] opens libfabric.so.1 and looks up six functions. All other
// calls use the tables of its objects.
//
// Its terms are libfabric's. Every object is a [FID], and addresses of C memory are numbers. The
// structs of ops, events and offers have fixed sizes, so that one call passes a batch to C. The
// package does not depend on core/fabric.
//
// It is built only with the tag ofi, which needs the headers (libfabric-dev) and a C compiler.
// Without the tag the package is empty.
package libfabric
