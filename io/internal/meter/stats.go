// SPDX-License-Identifier: MIT

package meter

// EngineStats describes an engine's past and pending transfers. Times are in the unit that the name
// ends in, everything else in bytes or a number. Sums count from the creation of the engine.
type EngineStats struct {
	Key      string      `json:"key"`
	TimeS    float64     `json:"time_s"`   // since 1970
	UptimeS  float64     `json:"uptime_s"` // since the engine was created
	Totals   Totals      `json:"totals"`
	InFlight uint64      `json:"in_flight"`
	Regions  int         `json:"regions"`
	Peers    []PeerStats `json:"peers"`   // peers of transfers, and known peers without any
	Stuck    []Transfer  `json:"stuck"`   // in flight for more than a second, longest first, at most 16
	Slowest  []Transfer  `json:"slowest"` // of the last 4096 that ended, longest first, at most 16
	Tags     TagStats    `json:"tags"`
}

// TagStats counts tags on their way to peers.
type TagStats struct {
	Waiting int    `json:"waiting"`
	Dropped uint64 `json:"dropped"`
}

// Transfer is one transfer.
type Transfer struct {
	Peer      string  `json:"peer"`
	Path      string  `json:"path"` // the present or last one
	Kind      string  `json:"kind"` // read or write
	UID       uint64  `json:"uid"`
	Tag       string  `json:"tag"` // "" = none
	Code      string  `json:"code"`
	Stage     string  `json:"stage"` // where it stands, or "ended"
	Bytes     uint64  `json:"bytes"`
	BytesDone uint64  `json:"bytes_done"`
	Ops       uint32  `json:"ops"`
	Replays   uint32  `json:"replays"`
	StartS    float64 `json:"start_s"`     // since 1970
	FirstOpUS float64 `json:"first_op_us"` // until its first op was done; 0: none was
	LastOpUS  float64 `json:"last_op_us"`  // until its last op was done
	TookUS    float64 `json:"took_us"`     // until its end was reported, or so far
}
