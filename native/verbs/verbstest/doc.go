// SPDX-License-Identifier: MIT

// Package verbstest gives tests RDMA devices on every machine: real ones, soft-RoCE among them,
// where MORI_REQUIRE has rdma in its list, else emulated ones, by a libibverbs.so.1 whose devices
// are sockets and threads.
//
//	func TestMain(m *testing.M) { verbstest.Main(m, fabrictest.Main) }
//
//	func TestWrite(t *testing.T) {
//		verbstest.Need(t) // skips where there is neither; verbstest.Need(t, 2) wants two devices
//		ctx, err := verbs.Open("emu0") // or what verbs.Devices has
//		...
//	}
//
// The tests are the same on both, and so are they in processes that a test starts: a re-executed
// test binary with the same TestMain, or any other program, finds the emulated library by
// LD_LIBRARY_PATH, which Main extends. What only emulated devices can be made to, [PortDown],
// [Remove], [Hold], [DropGID], [FailNext], [Fail], [Limit], [Delay], [PeerMemory] and [Count] do,
// and [Bytes], [Most] and [Objects] are counts of theirs alone; such tests skip on real ones. The
// variables of testdata/steer.cpp steer them too, in the environment of any process.
// tests/python/nics.py is the same for Python.
//
// # What the emulated devices are like
//
// They are emu0 and emu1, each with one port of RoCE v2 that reports 100 Gbit/s, and three GIDs:
// link-local, of IPv4 (198.18.0.10 for emu0, 198.18.1.10 for emu1) and of IPv6. Queue pairs are
// reliable connected ones. They reach each other in all processes of a network namespace by GID and
// number, on one device or two. Numbers of queue pairs are unique on a device. A device's state,
// which [PortDown], [Hold] and the others change, is of one process: to its peers a process is a
// host.
//
// Calls return at once; a thread for each context does the work. A pair's requests go out in order
// in packets of 32 KiB, several at once, are executed in order, and complete in order. Reads and
// atomics overlap what follows them, as on real devices: a request that needs what they bring has
// the fence, or is posted after their completion. Where several pairs are concerned there is no
// order at all, which shows most surely with [Delay].
//
// It refuses what devices refuse: attributes and changes of state, rights and bounds of both sides,
// queues that are full. Slots of a send queue are free again when a completion is polled that was
// posted at or after them. Keys of regions differ by their use, rkeys are never lkeys, and come
// back after 16 million registrations. An error of the peer has both pairs fail, and everything
// posted is flushed in order; the peer hears an event. Completions that are not successes have no
// opcode or length. A queue that overruns loses what came, and its pairs fail. Nobody answers, for
// a process that ended, a pair that was destroyed or reset or is in error, a sequence number that
// is not the agreed one, a port that is down: that ends with StatusRetryExceeded after the pair's
// timeout and retries, but with 50 ms for each of them at most. A peer that is slow, or stopped by
// a debugger, is waited for.
//
// It is stricter than devices are: requests to a pair with another MTU fail if they are longer than
// the smaller one, reads and atomics to a pair that answers fewer at once than this one may send
// fail always, and who uses an object after it was destroyed, acknowledges what it did not get, or
// comes with an object over a fork ends the process with words.
//
// Memory of an emulated GPU (native/gpu/gputest) is taken by its dma-bufs. As an address it is
// refused (EFAULT), unless there is a peer memory module; see [PeerMemory].
//
// # What it is not like
//
//   - It says nothing of speed.
//   - There are no shared receive queues, other kinds of queue pairs, memory windows, or extended
//     interfaces (ibv_create_cq_ex, ibv_wr_*), as on old devices: the header's calls answer
//     EOPNOTSUPP or ENOSYS.
//   - Memory is not pinned. What is unmapped while it is registered cannot be accessed, where a
//     device continues to write to the old pages.
//   - /sys/class/infiniband knows nothing of these devices.
//   - A request with a sequence number of before is dropped, where a device takes it for one that
//     was sent twice and acknowledges it.
//   - A service level, traffic class or hop limit changes nothing.
//   - A closed peer is known by its socket, and a lost packet is none: nothing is sent twice but
//     after a receiver was not ready.
package verbstest
