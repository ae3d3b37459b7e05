// SPDX-License-Identifier: MIT

// Package memory has what the layers above the transports need to know about memory: where a buffer
// lies, and words that threads outside Go can watch.
package memory
