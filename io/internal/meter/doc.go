// SPDX-License-Identifier: MIT

// Package meter counts and records transfers, at a cost low enough to be always on.
//
//	p := set.Path("decode-1", "shm/cma")    // once for each path that is opened
//	o := p.Op(isRead)
//	o.Enter()                               // a transfer was submitted
//	o.Moved(4096)                           // some of its bytes are done
//	o.Succeeded(took)                       // it ended; on failure: o.Failed(code, canceled)
//	ring.Add(&meter.Record{...})            // keep it for a while
//
// Writers allocate nothing and take no lock that is held for long: counters and histograms are
// atomic words, and the ring of records has one lock per slot. Readers see each word consistently;
// words that belong together may differ by one transfer. The caller provides the clock: Set.Sample
// samples throughput.
//
// Programs and people read the types that end in Stats. Their JSON is the public form.
package meter
