// SPDX-License-Identifier: MIT

// Package watch has the descriptors that event loops poll for the end of transfers.
//
//   - A Watcher collects the tokens of the statuses that it watches.
//   - Endings say that any transfer of an engine has ended.
package watch
