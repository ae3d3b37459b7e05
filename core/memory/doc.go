// SPDX-License-Identifier: MIT

// Package memory holds what the layers above the transports need to know about memory: where a
// buffer lives, and words that threads outside Go can watch.
package memory
