// SPDX-License-Identifier: MIT

// Package pages asks the kernel about pages of this process: whether they are mapped, with which
// rights, whether they are in memory, and on which NUMA node. No call touches a page.
package pages
