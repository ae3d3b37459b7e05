// SPDX-License-Identifier: MIT

package peer

// Info describes how a peer is reached.
type Info struct {
	Key      string     `json:"key"`
	NodeID   string     `json:"node_id"`
	SameNode bool       `json:"same_node"`
	InFlight int        `json:"in_flight"`
	Paths    []PathInfo `json:"paths"`
	SilentMS int64      `json:"silent_ms"` // since the last sign of life; 0 without an open path
}

// PathInfo describes an open path.
type PathInfo struct {
	Backend string   `json:"backend"`
	Memory  string   `json:"memory"`  // of the pairs that use it: "host", "gpu" at an end, "any"
	Path    string   `json:"path"`    // transport/how: "shm/cma", "tcp"
	Reasons []string `json:"reasons"` // why no better path is used
}

// Describe returns how the peer is reached.
func (p *Peer) Describe() Info {
	out := Info{Key: p.Desc.Key, NodeID: p.Desc.NodeID, SameNode: p.SameNode(), Paths: []PathInfo{},
		SilentMS: p.life.silent().Milliseconds(), InFlight: p.Pending.Order.InFlight()}
	for r, q := range p.paths.open() {
		out.Paths = append(out.Paths, PathInfo{r.Backend.Kind.String(), r.Memory(), q.Name(),
			append([]string{}, p.Why(r, q)...)})
	}
	return out
}
