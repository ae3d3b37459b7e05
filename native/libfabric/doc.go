// SPDX-License-Identifier: MIT

// Package libfabric is the door to a libfabric that is loaded when it is first asked for, version
// 1.17 or newer. Nothing links against it: [Load] opens libfabric.so.1 and takes six functions from
// it, and everything else goes through the tables of its objects.
//
// Its words are libfabric's own, flattened: objects are a [FID] each, addresses of C memory are
// numbers, and the structs of ops, events and offers have fixed sizes, so that a batch crosses into
// C in one call. It knows nothing of core/fabric.
//
// It is built with the tag ofi only, which needs the headers (libfabric-dev) and a C compiler.
// Without it the package is empty.
package libfabric
