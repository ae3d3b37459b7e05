// SPDX-License-Identifier: MIT

//go:build !race

package fabrictest

const raceEnabled = false
