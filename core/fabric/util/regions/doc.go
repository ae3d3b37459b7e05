// SPDX-License-Identifier: MIT

// Package regions holds the memory that endpoints of a domain may access: a [Table] of the domain's
// registered regions, which checks peers' accesses, and the [Imports] of peers' regions.
//
// A domain owns one of each. All types are safe for concurrent use. Acquire, Release and Lookup do
// not allocate, except for errors.
package regions
