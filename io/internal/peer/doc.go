// SPDX-License-Identifier: MIT

// Package peer has the registered remote engines, and the paths to them.
//
//   - A Peer is one registration of a remote engine, with its pending transfers.
//   - paths has its open paths by route; a dialer opens them.
//   - A replayer moves the unfinished transfers of a broken path to the next one.
//   - A lease closes the paths of a peer that shows no sign of life.
//   - A Table has the peers of an engine by key, and rejects incarnations that were replaced.
//
// # Replay
//
// When a path breaks, its unfinished ops are replayed on the next path:
//
//  1. This side closes its end, so that nothing can write here any more.
//  2. The peer confirms over the control plane that it closed the other end. So no late byte of the
//     old path can overwrite a newer write there.
//  3. The ops are sent on the next path.
//
// Replays are idempotent: bytes move from the same place to the same place, and the notification of
// a uid sets one mark.
package peer
