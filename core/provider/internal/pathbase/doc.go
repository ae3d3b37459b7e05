// SPDX-License-Identifier: MIT

// Package pathbase has what the data paths of devices have in common: those of p2p, whose GPUs
// copy, and of verbs, whose NICs do.
//
//	Base           the gate of ops, the end of the path, why ops take the stream
//	Pending        the pending ops, and a pool of those that ended
//	Registrations  the regions of a domain as its devices know them
//	Member         a data path as its domain sees it, for revocation
package pathbase
