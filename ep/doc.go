// SPDX-License-Identifier: MIT

// Package ep brings the tokens of a mixture-of-experts layer to the ranks where their experts live (dispatch), and what the
// experts made of them back (combine).
//
// # What there is
//
//	cfg := ep.DefaultConfig()              // or ep.ParseConfig(json); then cfg.Validate()
//	layout, err := ep.NewLayout(cfg, 56)   // where everything lies in the symmetric memory of the op
//	plan, board := ep.NewPlan(cfg), ep.NewBoard(cfg)
//
//	err = plan.Build(indices)              // my tokens' experts, [n, TopK]: rows, blocks and counts
//	... publish plan.Counts(), and gather everybody's into board.Row(s) ...
//	err = board.Admit()                    // who may send, and where each block lies
//	err = plan.Place(board)                // my blocks' slots
//
// All of this is arithmetic: no clock, no goroutine, no input or output. The memory that indices and maps lie in is the caller's, and none is
// kept. A Plan and a Board keep theirs, so that a call in the steady state allocates nothing.
//
// # Rows
//
// Expert e lives on rank e / ExpertsPerRank. A token becomes one row to each distinct rank that it chose an expert of, however many of
// its choices that rank serves. A number below 0 or beyond the last expert goes nowhere; it stays as it is in the indices
// that travel with the row, as do the experts of other ranks.
//
// # Dispatch
//
// Each step is a wait for all ranks at most, and every wait has a deadline. Flags hold the number of the call; they only grow.
//
//  1. Every rank s builds its plan and writes its counts c[s][0..n) into Layout.Counts of every rank, then sets Published[s] there.
//  2. It waits for Published of all. This also says that every rank has entered this dispatch: that what the last one brought is done
//     with, and may be overwritten. Now all ranks have the same matrix. The block of s at d starts at the sum of c[s'][d]
//     over s' < s. A source whose rows find no room somewhere is left out by all in the same way (Board); it goes on with no rows, tells its caller so
//     at the end, and stays in step: its next combine takes part and gives zeros.
//  3. It copies its rows, with weights, indices, scales and positions, into its block at every destination d, then sets Arrived[s] there.
//  4. It waits for Arrived of all. What d received are the Board.Total(d) first rows: without holes, by source, then by token.
//
// # Combine
//
//  1. Every rank d waits for Pulled of the last combine from all, for somebody may still read its CombineIn when no dispatch came between. Then it puts
//     the rows of its experts there, in the order received, and sets Ready[d] at all.
//  2. It waits for Ready of all.
//  3. For token t, Plan.Rows tells the ranks and slots; the rows are summed in that order, in float32, and rounded once. They can be read
//     in place, or pulled before, for all that a rank wants of another is one block.
//  4. It sets Pulled at all. When it has left combine nobody waits for it.
//
// A caller that fills CombineIn itself (UseExternalInpBuf is false) may begin when a dispatch has ended after the last combine; without one between, only the
// wait of step 1 makes it safe.
//
// Counts are there twice, for even and odd dispatches. They need no more: to publish for dispatch k+2 a rank has left k+1, so all
// have entered k+1 and are done with the board of k. The words behind a flag are there once: who writes those of call k+1 has the answer of
// all to call k, which they gave after reading.
//
// # Why blocks, and not slots from a counter
//
// The usual way is that each row takes a slot from an atomic counter at its destination. Publishing counts first costs one message of 4n bytes
// to each rank, which the wait for "everybody has entered" needs in any case. For this, no atomic operation crosses a wire; what goes from one rank to another is a
// single write for each array, on which a network reaches its rate; the same input gives the same bytes, with sums in the same
// order; an excess is known before a byte has moved; and the receiver finds all rows of a source without a search.
//
// # What the GPU path shares
//
// Config, Layout, the meaning of positions and routing maps, the order of rows, and the flags, but for one: where loads and stores reach all ranks, a count
// is a word that has the dispatch's number in it (mori/ep/words.hpp), so that nobody waits for a fence between counts and Published. Kernels plan and admit
// by themselves, on the device; Plan and Board say what they must come to.
//
// Combine has a second way there (mori/ep/sent.hpp), for rows of the last dispatch that do not lie in CombineIn and are many: a rank sends each to the rank of its token, where
// it has a place for each token of each rank, so that nobody asks for one, and copies none of its own. The line of Ready has a word for each chunk of the rows of one rank for
// another. Everybody knows from the counts how many rows that are, which way it is, and where in it a row is. It needs CombineIn uncapped, and positions and counts of
// the dispatch, which a Route does not have. Measured with two GPUs: 4096 tokens take 218 µs, and with the same sums 268 where rows are copied and then pulled.
//
// An Op of a World whose heap is on a GPU is there, too. Its calls have the same arguments, with addresses that the GPU reaches, and queue kernels on
// the stream of SetStream; they wait for nothing, and what went wrong is told by a later call or by Check (gpu.go).
//
// # GPUs of several hosts
//
// Counts, flags and rows for ranks that loads and stores do not reach go through the World's queue (shmem.World.Remote), out of symmetric memory and into it. Published
// carries the counts, as one put with a signal. A source's rows are records, with the slots that they belong to, in chunks; each is one put with a signal to a peer, which copies them
// to their slots and raises Arrived in the name of the source: to itself, or, as a forwarder, to the ranks of its host. In combine each rank sends the block of another's rows out of
// its CombineIn to a place that both know from the counts, or, for a Route, by what the other has asked for; a word behind each chunk takes the place of Ready. Pulled is for all.
//
// Where tokens are forwarded, combine mirrors it: the forwarder still has the records of the last dispatch, which tell the slots of a token's rows at the ranks of its host. When these are
// Ready it sums them, in float32, rounds the sum to the rows' type, and sends the sums of a chunk of records with one put. The token's rank knows the place of its record in the chunk, and
// adds the rows of its own host and one from each other. So one row of a token crosses from each host, for one more rounding there; sums are the same to the last bit where they are exact.
// Rows of one byte an element, and combines that have or follow a Route, go as without forwarders. Forwarders do it in the recv of two phases, where the other rank waits for them.
//
// Chunks and records need one place each: a rank sends for dispatch k+1 when all have published k+1, and so are done with the records of k, and rows or sums for combine
// j+1 when all have pulled those of j.
//
// # Errors
//
// Every error wraps one of the sentinels of errors.go. Only ErrRecvCap is about data; it leaves the op as good as before. ErrCounts means that
// a rank wrote what no plan gives.
package ep
