// SPDX-License-Identifier: MIT

//go:build !race

package bootstrap

const raceEnabled = false
