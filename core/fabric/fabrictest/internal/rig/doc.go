// SPDX-License-Identifier: MIT

// Package rig is what the cases of the conformance suite work with: a [Rig] with a provider, hosts
// on it that share nothing, their endpoints ([Node]), and memory with known bytes.
//
// Its functions fail the case where something is not as it should be. After the case, no goroutine
// and no descriptor may be left.
package rig
