// SPDX-License-Identifier: MIT

// Package queues has the cases of completion queues, counters, and descriptors to wait on.
package queues
