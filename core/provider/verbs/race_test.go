// SPDX-License-Identifier: MIT

//go:build race

package verbs

const raceEnabled = true
