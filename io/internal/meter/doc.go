// SPDX-License-Identifier: MIT

// Package meter counts and remembers what happened to transfers, cheaply enough to be always on.
//
//	p := set.Path("decode-1", "shm/cma")    // once for each path that is opened
//	o := p.Op(isRead)
//	o.Enter()                               // a transfer was submitted
//	o.Moved(4096)                           // some of its bytes are done
//	o.Succeeded(took)                       // it ended; o.Failed(code, canceled) else
//	ring.Add(&meter.Record{...})            // and is remembered for a while
//
// Who books takes no lock that somebody else holds for long and allocates nothing: counters and
// histograms are atomic words, and the ring of records has a lock for each of its slots. Who reads
// sees each word whole, and words that belong together up to one transfer apart. The clock is the
// caller's: throughput is sampled by Set.Sample.
//
// The types that end in Stats are what people and programs read; their JSON is the public form.
package meter
