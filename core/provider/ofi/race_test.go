// SPDX-License-Identifier: MIT

//go:build ofi && race

package ofi_test

const raceEnabled = true
