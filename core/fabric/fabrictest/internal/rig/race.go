// SPDX-License-Identifier: MIT

//go:build race

package rig

const RaceEnabled = true
