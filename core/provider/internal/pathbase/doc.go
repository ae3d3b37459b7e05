// SPDX-License-Identifier: MIT

// Package pathbase has what the data paths of devices have in common: those of p2p, whose GPUs
// copy, and of verbs, whose NICs do.
//
//	Ops            ops between RMA and their completion, and the shutdown of a data path
//	Pending        the pool of pending ops
//	Grants         grants of regions, in both directions
//	SlowPath       why ops take the stream
//	Domains        what the data paths of a domain share, and revocation when a region closes
//	Registrations  the regions of a domain as its devices know them
//	DeviceOf       the device that memory is on
package pathbase
