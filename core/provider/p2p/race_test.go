// SPDX-License-Identifier: MIT

//go:build race

package p2p

const raceEnabled = true
