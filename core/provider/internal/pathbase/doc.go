// SPDX-License-Identifier: MIT

// Package pathbase has what the data paths of devices share: p2p, where GPUs copy, and verbs, where
// NICs copy.
//
//	Ops            ops between RMA and their completion, and the shutdown of a data path
//	Pending        the pool of pending ops
//	Grants         grants of regions, in both directions
//	SlowPath       why ops use the stream
//	Domains        what the data paths of a domain share, and revocation when a region closes
//	Registrations  the regions of a domain that are registered with its devices
//	DeviceOf       the device that holds some memory
package pathbase
