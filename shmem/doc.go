// SPDX-License-Identifier: MIT

// Package shmem is OpenSHMEM-style symmetric memory between processing elements (PEs).
package shmem
