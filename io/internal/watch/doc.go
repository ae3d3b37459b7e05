// SPDX-License-Identifier: MIT

// Package watch provides descriptors that event loops poll for the end of transfers.
//
//   - A Watcher collects the tokens of the statuses that it watches.
//   - Endings signals that any transfer of an engine has ended.
package watch
