// SPDX-License-Identifier: MIT

//go:build race

package ep

// raceBuild: the race detector has pools drop what they hold.
const raceBuild = true
