// SPDX-License-Identifier: MIT

// Package regions holds the memory that endpoints of a domain may access: a [Table] of the domain's
// own registered regions, which answers the claims of peers, and the [Imports] that peers gave us.
//
// A domain owns one of each. All types are safe for concurrent use. Acquire, Release and Lookup do
// not allocate, but for errors.
package regions
