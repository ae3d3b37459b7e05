// SPDX-License-Identifier: MIT

// Package peer has the remote engines that are registered, and the paths to them.
//
//   - A Peer is one registration of a remote engine, with its pending transfers.
//   - paths has its open paths by route; a dialer opens them.
//   - A replayer brings what a broken path left undone to the next one.
//   - A lease closes the paths of a peer that gives no sign of life.
//   - A Table has the peers of an engine by key, and refuses incarnations that were replaced.
//
// # Replay
//
// When a path breaks, its unfinished ops are replayed on the next path. First this side closes its
// end, so that nothing can land here. Then the peer confirms over the control plane that it closed
// the other end, so that nothing can land there behind a newer write. A replay is harmless: bytes
// move from the same place to the same place, and the notification of a uid sets one mark.
package peer
