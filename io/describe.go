// SPDX-License-Identifier: MIT

package io

import (
	"slices"
	"time"

	"mori/io/internal/meter"
)

// Counters say what happened to an engine's transfers since it was made.
type Counters = meter.Totals

// EngineInfo is what Engine.Describe returns.
type EngineInfo struct {
	Key      string        `json:"key"`
	NodeID   string        `json:"node_id"`
	Host     string        `json:"host"`
	Port     int           `json:"port"`
	Backends []BackendInfo `json:"backends"`
	Peers    []PeerInfo    `json:"peers"`
	Regions  int           `json:"regions"`
	Counters Counters      `json:"counters"`
}

// BackendInfo says what a backend runs on, and why not on something better.
type BackendInfo struct {
	Type          string   `json:"type"`
	Transports    []string `json:"transports"`     // for pairs of host memory, in order of preference
	GPUTransports []string `json:"gpu_transports"` // for pairs with GPU memory at one end or both
	Notes         []string `json:"notes"`
}

// PeerInfo says how a peer is reached.
type PeerInfo struct {
	Key      string     `json:"key"`
	NodeID   string     `json:"node_id"`
	SameNode bool       `json:"same_node"`
	InFlight int        `json:"in_flight"`
	Paths    []PathInfo `json:"paths"`
	SilentMS int64      `json:"silent_ms"` // since the last sign of life; 0 without an open path
}

// PathInfo is an open path.
type PathInfo struct {
	Backend string   `json:"backend"`
	Memory  string   `json:"memory"`  // the pairs that use it: "host", "gpu" (at one end or both), "any"
	Path    string   `json:"path"`    // transport/how: "shm/cma", "tcp"
	Reasons []string `json:"reasons"` // why no better path is used
}

// SessionInfo is what Session.Describe returns.
type SessionInfo struct {
	Peer    string `json:"peer"`
	Backend string `json:"backend"`
	Memory  string `json:"memory"` // as in PathInfo
	// Link is what lies between two GPUs of this host: "NVLink", "xGMI", "PCIe", "same GPU" or "no peer
	// access"; else "".
	Link string `json:"link"`

	Path    string   `json:"path"` // "" while none is open
	Reasons []string `json:"reasons"`
	Alive   bool     `json:"alive"`
	Local   uint32   `json:"local_id"`
	Remote  uint32   `json:"remote_id"`
	OpBytes uint64   `json:"op_bytes"` // a transfer is cut into ops of so many bytes
}

// Describe returns how the engine reaches its peers, and why not better.
func (e *Engine) Describe() EngineInfo {
	d := e.Desc()
	out := EngineInfo{Key: d.Key, NodeID: d.NodeID, Host: d.Host, Port: d.Port,
		Backends: e.backends.describe(), Peers: []PeerInfo{}}
	for _, p := range e.store.allPeers() {
		out.Peers = append(out.Peers, p.describe())
	}
	out.Regions = len(e.regions.All())
	out.Counters = e.meters.totals()
	return out
}

func (p *peer) describe() PeerInfo {
	out := PeerInfo{Key: p.desc.Key, NodeID: p.desc.NodeID, SameNode: p.sameNode(), Paths: []PathInfo{}}
	if at := p.life.heard.Load(); at != 0 {
		out.SilentMS = time.Since(time.Unix(0, at)).Milliseconds()
	}
	p.order.mu.Lock()
	out.InFlight = p.order.inflight
	p.order.mu.Unlock()
	for r, q := range p.pathsByRoute() {
		out.Paths = append(out.Paths, PathInfo{r.backend.kind.String(), r.memory(), q.name,
			notNil(q.why())})
	}
	return out
}

// Describe returns which path the session uses.
func (s *Session) Describe() SessionInfo {
	out := SessionInfo{Peer: s.remote.EngineKey, Backend: s.route.backend.kind.String(),
		Memory: s.route.memory(), Link: s.link(), Reasons: notNil(s.skipped), Alive: s.Alive(),
		Local: s.local.Desc().ID, Remote: s.remote.ID}
	if p := s.plan.Load(); p != nil && p.path.err() == nil {
		out.Path, out.OpBytes = p.path.name, p.to.OpMax
		out.Reasons = append(slices.Clone(out.Reasons), p.path.why()...)
	}
	return out
}

// link names what is between the two GPUs of a session, "" where there are not two of this host.
func (s *Session) link() string {
	if !s.peer.sameNode() {
		return ""
	}
	return s.local.Link(&s.remote)
}

func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
