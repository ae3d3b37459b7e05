// SPDX-License-Identifier: MIT

package io

import (
	"mori/io/internal/backend"
	"mori/io/internal/meter"
	"mori/io/internal/peer"
)

// Counters count an engine's transfers since it was created.
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

// Parts of EngineInfo: backends and peers.
type (
	BackendInfo = backend.Info
	PeerInfo    = peer.Info
	PathInfo    = peer.PathInfo
)

// SessionInfo is what Session.Describe returns.
type SessionInfo struct {
	Peer    string `json:"peer"`
	Backend string `json:"backend"`
	Memory  string `json:"memory"` // as in PathInfo
	// Link is the connection between two GPUs of this host, "" for other pairs: "NVLink", "xGMI",
	// "PCIe", "same GPU" or "no peer access".
	Link string `json:"link"`

	Path    string   `json:"path"` // "" while no path is open
	Reasons []string `json:"reasons"`
	Alive   bool     `json:"alive"`
	Local   uint32   `json:"local_id"`
	Remote  uint32   `json:"remote_id"`
	OpBytes uint64   `json:"op_bytes"` // bytes at which a transfer is split into ops
}

// Describe returns how the engine reaches its peers, and why each better path is not used.
func (e *Engine) Describe() EngineInfo {
	d := e.Desc()
	out := EngineInfo{Key: d.Key, NodeID: d.NodeID, Host: d.Host, Port: d.Port,
		Backends: e.backends.Describe(), Peers: []PeerInfo{}}
	for _, p := range e.peers.All() {
		out.Peers = append(out.Peers, p.Describe())
	}
	out.Regions = len(e.regions.All())
	out.Counters = e.meters.Totals()
	return out
}

// Describe returns which path the session uses.
func (s *Session) Describe() SessionInfo {
	local := s.pair.Local
	out := SessionInfo{Peer: s.remote.EngineKey, Backend: s.route.Backend.Kind.String(),
		Memory: s.route.Memory(), Reasons: append([]string{}, s.skipped...), Alive: s.Alive(),
		Local: local.Desc().ID, Remote: s.remote.ID}
	if s.peer.SameNode() {
		out.Link = local.Link(&s.remote)
	}
	if p := s.plan.Load(); p != nil && p.path.Err() == nil {
		out.Path, out.OpBytes = p.path.Name(), p.to.OpMax
		out.Reasons = append(out.Reasons, s.peer.Why(s.route, p.path)...)
	}
	return out
}
