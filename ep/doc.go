// SPDX-License-Identifier: MIT

// Package ep sends the tokens of a mixture-of-experts layer to the ranks of their experts
// (dispatch), and sums what the experts made of them on the tokens' ranks (combine).
//
// # Rows
//
// Expert e lives on rank e / ExpertsPerRank. A token becomes one row for each distinct rank with an
// expert that it chose, however many of its choices that rank serves. A number below 0 or beyond
// the last expert has no destination. It stays in the indices that travel with the row, as do the
// experts of other ranks.
//
// # Dispatch
//
// Each step waits for all ranks at most, and every wait has a deadline. A flag has the number of
// the call. It only increases.
//
//  1. Every rank s builds its plan. It writes its counts c[s][0..n) into Layout.Counts of every
//     rank, then sets Published[s] there.
//  2. It waits for Published of all ranks. Then every rank has entered this dispatch and no longer
//     needs the rows of the last one, so they may be overwritten. All ranks now have the same count
//     matrix. The block of s at d starts at the sum of c[s'][d] over s' < s. If a source has more
//     rows than a rank has room for, all ranks leave it out alike. It sends no rows and reports
//     the error to its caller at the end. It stays in step: its next combine gives zeros.
//  3. It copies its rows, with weights, indices, scales and positions, into its block at every
//     destination d, then sets Arrived[s] there.
//  4. It waits for Arrived of all ranks. The rows that d received are the first ones of its
//     regions: without gaps, by source, then by token.
//
// # Combine
//
//  1. Every rank d waits for Pulled of the last combine from all ranks, because a rank may still
//     read its CombineIn if no dispatch came between. Then it puts the rows of its experts there,
//     in the order received, and sets Ready[d] on all ranks.
//  2. It waits for Ready of all ranks.
//  3. For token t, the plan has the ranks and slots. The rows are summed in that order, in float32,
//     and rounded once. They are read in place, or pulled before: all rows that a rank needs from
//     another one are one block.
//  4. It sets Pulled on all ranks. When it has left combine, no rank waits for it.
//
// A caller that fills CombineIn itself (UseExternalInpBuf is false) may begin when a dispatch has
// ended after the last combine. Without a dispatch between, only the wait of step 1 makes it safe.
//
// There are two count matrices, for even and odd dispatches. More are not needed: a rank that
// publishes for dispatch k+2 has left k+1, so all ranks have entered k+1 and no longer need the
// matrix of k. The words behind a flag exist once: a rank that writes those of call k+1 has the
// flags of all ranks for call k, which they set after reading.
//
// # Why blocks, and not slots from a counter
//
// Usually each row takes a slot from an atomic counter at its destination. Publishing counts first
// costs one message of 4n bytes to each rank, which the wait for "all ranks have entered" needs in
// any case. In return:
//
//   - No atomic operation crosses a wire.
//   - Each array is a single write from one rank to another, so a network reaches its full rate.
//   - The same input gives the same bytes, with sums in the same order.
//   - An overflow is known before a byte has moved.
//   - The receiver finds all rows of a source without a search.
//
// # On a GPU
//
// The op of a World whose heap is on a GPU is on that GPU, unless Options.Host is set. Kernels take
// the same steps by themselves, with the same Config, Layout, positions, routing maps, order of
// rows and flags. One thing differs: where loads and stores reach all ranks, a count is a word with
// the dispatch's number in it (mori/ep/words.hpp). So no rank waits for a fence between counts and
// Published.
//
// A call has the same arguments, with addresses that the GPU reaches. It queues one kernel on the
// stream of SetStream and returns at once, without a wait or an allocation, so it may be captured
// into a graph. All ranks must replay such graphs alike. Received has the number of rows, on the
// device. An error comes from the next call, or from Check.
//
//   - A timeout, ranks that disagree, and impossible counts break the op.
//   - A *CapError comes from the call during which it is noticed. That call is carried out.
//
// Checks that would need a wait are left out: that a Route belongs to this op, that all ranks
// replay the same one, and that a Route with Weighted is that of the last dispatch.
//
// Combine can also push rows (mori/ep/sent.hpp): a rank sends each row to the rank of its token,
// where each token of each rank has its own slot. It does so for many rows of the last dispatch
// that do not lie in CombineIn. It needs an uncapped CombineIn, and the positions and counts of the
// dispatch, which a Route does not have. The line of Ready then has a word for each chunk of rows.
// All ranks know from the counts how many rows there are, whether they are pushed, and where each
// one lies. docs/lab/ep.md has the measurements.
//
// # GPUs of several hosts
//
// Counts, flags and rows for ranks that loads and stores do not reach pass the World's queue
// (shmem.World.Remote), from symmetric memory to symmetric memory. Published carries the counts, in
// one put with a signal. A source's rows are records, each with the slots that it belongs to. A
// chunk of records is one put with a signal to a peer. The peer copies the records to their slots
// and sets Arrived in the name of the source: for itself, or, as a forwarder, for the ranks of its
// host.
//
// In combine each rank sends the block of another's rows from its CombineIn to an offset that both
// know from the counts. For a Route the other rank requests it. A word behind each chunk replaces
// Ready. Pulled is set on all ranks.
//
// With a hierarchical KernelType, combine mirrors the forwarding. The forwarder still has the
// records of the last dispatch, with the slots of a token's rows on the ranks of its host. When
// these are Ready it sums them in float32, rounds the sum to the rows' type, and sends the sums of
// a chunk of records in one put. The token's rank adds the rows of its own host and one sum from
// each other host. So one row of a token crosses from each host, at the price of one more rounding.
// Sums are the same to the last bit where they are exact. Rows with 1-byte elements, and combines
// that have or follow a Route, are not summed by hosts. In a call of two phases the forwarders work
// in the recv.
//
// Chunks and records need one slot each: a rank sends for dispatch k+1 when all have published k+1,
// and so no longer need the records of k. It sends rows or sums for combine j+1 when all ranks have
// pulled those of j.
//
// # Errors
//
// Every error wraps one of the sentinels of types.go. Only ErrRecvCap is about data, and it does
// not break the op. ErrCounts means that a rank published counts that no plan makes.
//
// # Packages
//
// Op picks a side, on host memory or on a GPU, and the side carries out the calls. A package below
// imports only those above it in this list:
//
//   - internal/view reads memory at an address as a slice of numbers.
//   - internal/plan is the arithmetic: configuration, layout, plans, the count matrix.
//   - internal/launch chooses how many blocks and warps kernels get.
//   - internal/call has the arguments of calls, and whether an op is open or broken.
//   - internal/host dispatches and combines on host memory.
//   - internal/gpu does so on a GPU. It is not named device, because it imports core/device.
//
// A test in tests/go enforces the order.
package ep
