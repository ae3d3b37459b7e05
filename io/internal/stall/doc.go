// SPDX-License-Identifier: MIT

// Package stall writes traces to files when transfers miss their deadline.
//
// Traces belong to an engine and end with it. A Limit belongs to the process and limits how many
// files it writes.
package stall
