// SPDX-License-Identifier: MIT

//go:build !race

package shmem

const raceBuild = false
