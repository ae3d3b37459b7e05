// SPDX-License-Identifier: MIT

// Package bootstrap lets ranks find each other and exchange small blobs before a faster transport
// exists, and reports ranks that die.
//
// # How to get a group
//
// One rank creates an id and sends it to the others over any channel; then all join:
//
//	id, err := bootstrap.NewUniqueID()                                 // on the host of rank 0
//	g, err := bootstrap.Join(ctx, id, rank, size, bootstrap.Options{}) // all ranks
//	blobs, err := g.AllGather(ctx, mine)
//	defer g.Close()
//
// [JoinFile] needs a shared folder instead. [JoinLaunched] needs nothing from the caller: it uses
// the variables that launchers set, which package launcher reads. [Local] creates the ranks of one
// process, for tests.
//
// # Parts
//
// A member is this rank in a group over the network. It owns an assembly (how the group comes
// together), its calls, and a diagnoser (which rank is missing, or in another call). Links carry
// frames to other ranks. A door accepts connections and runs the handshake on them.
//
// # Protocol
//
// Rank 0 listens while ranks join, and every rank keeps one TCP connection with it. For collective
// calls the ranks form a tree of eight children each: blobs go up, all blobs come down. So no rank
// sends to more than eight others, and 256 processes of one host start in a second or two. A call
// of two ranks takes about two round trips of TCP.
//
// # Waits and errors
//
// Every wait ends: Join by Options.Timeout or MORI_BOOTSTRAP_TIMEOUT, a collective call by its ctx,
// or by the same timeout if ctx has no deadline. Both may take a second longer, in which rank 0
// diagnoses the cause. A failure breaks the group for all ranks, and all get the same error:
//
//   - Ranks that do not join, or do not enter a call, are named in an error that wraps
//     context.DeadlineExceeded; so are those that do not answer, for example because they are
//     stopped.
//   - A rank whose process dies, or whose connection breaks, is named by a RankError that wraps
//     ErrRankDied. That takes as long as the kernel needs to know: nothing for a killed process,
//     also if its children have inherited the connections, and 20 s for a host that vanishes.
//   - A rank that calls Close while others make calls is named by a RankError that wraps
//     ErrRankLeft. For ranks that make no call, Failed closes five seconds after it left. If all
//     close, there is no error.
//   - Ranks that disagree on their number, on their ranks, or on the next call get an error that
//     wraps ErrMismatch and names them.
//
// Failed and Err report this without a call. A broken group stays broken: Close it.
//
// # Security
//
// A rank is let in after it and the listener have proved to each other, by HMAC-SHA256 over fresh
// random numbers, that they have the group's secret. Until then a connection costs a few hundred
// bytes and five seconds, and there are never more than 512 of them. Frames after that are neither
// encrypted nor authenticated: an attacker who can change packets on the network can change blobs.
//
// The secret of a UniqueID is 256 random bits: send the id over channels that strangers cannot
// read. JoinFile makes the file readable by its user only, and refuses another user's. JoinLaunched
// derives the secret from variables that the launcher sets for all ranks, so it is as secret as
// these: under torchrun they are the address and port of the master and the run's name, which
// others may guess. Where that matters, set MORI_AUTH_SECRET on all ranks, which is mixed in.
package bootstrap
