// SPDX-License-Identifier: MIT

//go:build !race

package ep

const raceBuild = false
