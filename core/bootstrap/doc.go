// SPDX-License-Identifier: MIT

// Package bootstrap lets ranks find each other and exchange small blobs before there is a faster way, and tells them when one of them dies.
//
// # How to get a group
//
// One rank makes an id and gives it to the others by whatever they have; then all join:
//
//	id, err := bootstrap.NewUniqueID()                                    // on the host of rank 0
//	g, err := bootstrap.Join(ctx, id, rank, size, bootstrap.Options{})    // all ranks
//	blobs, err := g.AllGather(ctx, mine)
//	defer g.Close()
//
// JoinFile needs a folder that all see instead. JoinLaunched needs nothing of the caller: torchrun, Ray Train, Open MPI's and MPICH's mpirun and
// Slurm's srun tell their ranks enough, and MORI_RANK, MORI_WORLD_SIZE and MORI_BOOTSTRAP do for all others. Launched only tells what they say.
// Local makes the ranks of one process, for tests.
//
// # What is on the wire
//
// Rank 0 listens while ranks join, and every rank keeps one TCP connection with it. For collective calls the ranks form a tree of eight children
// each: blobs go up, all blobs come down, so that no rank sends to more than eight others, and 256 processes of one host start in a second
// or two. A call of two ranks takes about two round trips of TCP.
//
// # Waits and errors
//
// Every wait ends: Join by Options.Timeout or MORI_BOOTSTRAP_TIMEOUT, a collective call by its ctx, or by the same timeout if that has no deadline, both
// at most a second later, in which rank 0 finds out whose fault it was. What goes wrong goes wrong for all ranks, and all are told the same:
//
//   - Ranks that do not come to Join, or to a call, are named in an error that wraps context.DeadlineExceeded; so are those that do not answer,
//     because they are stopped, say.
//   - A rank whose process dies, or whose connection breaks, is named by a RankError that wraps ErrRankDied: as soon as the kernel knows, which for
//     a killed process is at once, also if its children have inherited the connections, and for a host that vanishes is 20 s.
//   - A rank that calls Close while others make calls is named by a RankError that wraps ErrRankLeft. Ranks that make no call are told
//     by Failed when it has been gone for five seconds. If all close, no one complains.
//   - Ranks that do not agree on their number, on who is who, or on which call comes next get an error that wraps ErrMismatch and names them.
//
// Failed and Err tell this without a call. A broken group stays broken: Close it.
//
// # Who can get in
//
// A rank is let in after it and the listener have proved to each other, by HMAC-SHA256 over fresh random numbers, that they have the group's secret.
// Until then a connection costs us a few hundred bytes and five seconds, and there are never more than 512 of them. What follows is neither encrypted nor
// authenticated: who can change packets on the network can change blobs.
//
// The secret of a UniqueID is 256 random bits: send the id over channels that strangers cannot read. JoinFile makes the file readable by its
// user only, and takes no other user's. JoinLaunched derives the secret from what the launcher tells all ranks, so it is as secret as that: under
// torchrun it is the address and the port of the master and the run's name, which others may guess. Set MORI_AUTH_SECRET on all ranks, which
// is mixed in, where that matters.
package bootstrap
