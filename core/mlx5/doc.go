// SPDX-License-Identifier: MIT

// Package mlx5 speaks to ConnectX NICs in their own formats, so that a GPU can post work to them by itself: the entries of their
// queues, and the commands that make queues and connect them.
package mlx5
