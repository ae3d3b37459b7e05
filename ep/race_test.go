// SPDX-License-Identifier: MIT

//go:build race

package ep

// raceBuild is true under the race detector, which makes sync.Pool drop items at random.
const raceBuild = true
