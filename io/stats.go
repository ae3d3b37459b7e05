// SPDX-License-Identifier: MIT

package io

import (
	"cmp"
	"slices"
	"time"

	"mori/io/internal/meter"
	"mori/io/internal/peer"
	"mori/io/internal/transfer"
)

// Types that Engine.Stats returns.
type (
	Stats        = meter.EngineStats
	PeerStats    = meter.PeerStats
	PathStats    = meter.PathStats
	OpStats      = meter.OpStats
	LatencyStats = meter.LatencyStats
	TransferInfo = meter.Transfer
)

const (
	slowListed  = 16          // maximum length of a list of slow transfers
	slowFrom    = time.Second // a pending transfer is slow from this age on
	openScanned = 256         // pending transfers per peer that Stats searches for slow ones
	openTraced  = 1024        // pending transfers per peer that a trace includes
)

// info converts a record to its public form.
func info(r *meter.Record) TransferInfo {
	kind := "write"
	if r.Read {
		kind = "read"
	}
	return TransferInfo{Peer: r.Path.Peer, Path: r.Path.Name, Kind: kind, UID: r.UID, Tag: r.Tag,
		Code: transfer.CodeName(r.Code), Stage: "ended", Bytes: r.Total, BytesDone: r.Bytes, Ops: r.Ops,
		Replays: r.Replays, StartS: seconds(r.Start), FirstOpUS: micros(r.FirstOp),
		LastOpUS: micros(r.LastOp), TookUS: micros(r.Took)}
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// Stats returns counters of the engine's transfers and lists slow and pending ones. It works after
// Close.
func (e *Engine) Stats() Stats {
	now := time.Now()
	out := Stats{Key: e.self.Key, TimeS: seconds(now), UptimeS: now.Sub(e.meters.Born).Seconds(),
		Totals: e.meters.Totals(), Regions: len(e.regions.All()),
		Peers: e.meters.Peers(transfer.CodeName), Slowest: []TransferInfo{},
		Stuck: stuck(e.peers.Open(now, openScanned))}
	for i := range out.Peers {
		for _, p := range out.Peers[i].Paths {
			out.InFlight += p.Read.InFlight + p.Write.InFlight
		}
	}
	for _, p := range e.peers.All() {
		out.Peers = withPeer(out.Peers, p.Describe())
		waiting, dropped := p.Tags.State()
		out.Tags.Waiting += waiting
		out.Tags.Dropped += dropped
	}
	for _, r := range meter.Slowest(e.meters.Recent.Records(), slowListed) {
		out.Slowest = append(out.Slowest, info(&r))
	}
	return out
}

// withPeer adds the state of a registered peer to its statistics.
func withPeer(all []PeerStats, known peer.Info) []PeerStats {
	at := -1
	for i := range all {
		if all[i].Key == known.Key {
			at = i
		}
	}
	if at < 0 {
		all = append(all, PeerStats{Key: known.Key, Paths: []PathStats{}})
		at = len(all) - 1
	}
	all[at].Known = true
	for _, p := range known.Paths {
		for i := range all[at].Paths {
			if s := &all[at].Paths[i]; s.Path == p.Path {
				s.Open, s.Backend, s.Reasons = true, p.Backend, p.Reasons
			}
		}
	}
	return all
}

// stuck returns the open transfers that have been pending for too long, oldest first. stages has
// the stage of each open transfer.
func stuck(open []meter.Record, stages []string) []TransferInfo {
	out := []TransferInfo{}
	for k := range open {
		if open[k].Took < slowFrom {
			continue
		}
		i := info(&open[k])
		i.Stage = stages[k]
		out = append(out, i)
	}
	return longest(out)
}

func longest(all []TransferInfo) []TransferInfo {
	slices.SortStableFunc(all, func(a, b TransferInfo) int { return cmp.Compare(b.TookUS, a.TookUS) })
	return all[:min(len(all), slowListed)]
}
