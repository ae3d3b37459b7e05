// SPDX-License-Identifier: MIT

// Package memfd makes anonymous files that processes share (memfd_create), and maps them. Files are
// sealed against shrinking: otherwise SIGBUS could kill a process that maps one.
package memfd
