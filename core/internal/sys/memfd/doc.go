// SPDX-License-Identifier: MIT

// Package memfd makes anonymous files that processes share (memfd_create), and maps them. A file is
// sealed against shrinking: its mapper could otherwise be killed by SIGBUS.
package memfd
