// SPDX-License-Identifier: MIT

// Package pages queries the kernel about pages of this process: whether they are mapped, with which
// rights, whether they are in memory, and on which NUMA node. No call accesses a page.
package pages
