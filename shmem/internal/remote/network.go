// SPDX-License-Identifier: MIT

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"mori/core"
	"mori/core/fabric"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
)

// A Config describes what a Network is for.
type Config struct {
	Far      []bool      // by PE: its memory is not mapped here, so the Network reaches it
	Apart    bool        // some PEs are on different nodes; the same on all PEs
	GPU      *access.GPU // accesses the heap if it is on GPUs; nil: host memory
	Host     string      // address for PEs of other hosts
	QPPerPE  int
	Unlinked string // the PEs whose GPUs this PE's GPU does not reach, for an error

	// TooMuchToPin returns why NICs cannot pin the heap, "" if they can.
	TooMuchToPin func() string

	// Local returns the Regions of the symmetric memory with n bytes at addr, nil if it is not
	// symmetric.
	Local func(addr, n uint64) *Regions
}

// A Network reaches PEs over one endpoint of a provider. Offsets refer to a block of symmetric
// memory, whose Regions the caller passes. Operations start at once and end in any order. Errors
// name the PE. Safe for concurrent use.
type Network struct {
	pes *peers.Group
	cfg Config
	why []string // why better providers are not used

	endpoint
	registrar
	peers []peer
	ops   *pool
	probe *probe

	fences atomic.Uint64 // calls of Fence; the first op to each PE after one carries it
}

// A peer is a PE that the Network reaches. Its lock keeps ops in order behind a fence.
type peer struct {
	dest fabric.AVAddr

	mu     sync.Mutex
	fenced uint64       // number of fences that an op has carried
	ops    [1]fabric.Op // scratch
}

// A name is what PEs send each other about their endpoints.
type name struct {
	Addr fabric.Addr
	Key  []byte // key of the words for the probe, if there is one
}

// Open opens the best transport that all PEs have and that works between all of them. Collective.
func Open(ctx context.Context, pes *peers.Group, cfg Config) (*Network, error) {
	n, err := open(ctx, pes, cfg)
	if err != nil {
		return nil, fmt.Errorf("open a network to PEs whose memory is not mapped: %w", err)
	}
	return n, nil
}

func open(ctx context.Context, pes *peers.Group, cfg Config) (*Network, error) {
	choice, err := agree(ctx, pes, cfg)
	if err != nil {
		return nil, err
	}
	why := choice.why
	for i, provider := range choice.all {
		n := &Network{pes: pes, cfg: cfg, why: why, peers: make([]peer, pes.N), ops: newPool(pes)}
		n.endpoint.registry, n.endpoint.info = choice.registry, choice.infos[provider]
		n.registrar.endpoint, n.registrar.npes = &n.endpoint, pes.N
		if cfg.GPU != nil {
			n.registrar.gpu = cfg.GPU.Device
		}
		err = n.join(ctx)
		if err == nil {
			pes.Log.Info("PEs whose memory is not mapped are reached over a network", "pe", pes.Me, "provider", provider, "why", strings.Join(why, "; "))
			return n, nil
		}
		closed := errors.Join(n.Shut(), n.Close())
		if last := i == len(choice.all)-1; last || pes.Failed() != nil {
			return nil, errors.Join(err, closed)
		}
		pes.Log.Warn("a network failed to start, trying the next one", "pe", pes.Me, "provider", provider, "error", err)
		why = append(why, fmt.Sprintf("%s: %s", provider, strings.ReplaceAll(err.Error(), "\n", "; ")))
		if closed != nil {
			pes.Log.Warn("close a network that failed to start", "pe", pes.Me, "provider", provider, "error", closed)
		}
	}
	return nil, err // unreachable: agree returns at least one provider
}

// join opens the endpoint, exchanges names, and probes the connection to each PE. Collective.
func (n *Network) join(ctx context.Context) error {
	var p *probe
	mine := name{}
	cause := n.open(ctx, n.cfg.Host, n.pes.N, n.ops)
	if cause == nil && core.Pins(n.info.Provider) {
		n.ops.region, cause = n.Register(n.ops.buffer(), 0)
	}
	if cause == nil {
		mine.Addr, cause = n.ep.Name()
	}
	if cause == nil && core.Pins(n.info.Provider) {
		p, cause = n.newProbe()
		n.probe = p // it owns the memory that the endpoint may access until it is shut
		if cause == nil {
			mine.Key = p.regions.Key()
		}
	}
	defer func() {
		if err := p.close(); err != nil {
			n.pes.Log.Warn("close the regions of a probe", "pe", n.pes.Me, "error", err)
		}
	}()
	if err := n.pes.AllWell(ctx, cause); err != nil {
		return err
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := n.pes.Gather(ctx, text)
	if err == nil {
		err = n.pes.AllWell(ctx, n.insert(blobs, p))
	}
	if err == nil && p != nil {
		err = p.run(ctx)
	}
	return err
}

// insert adds the names of the PEs to the endpoint, and to the probe, if there is one.
func (n *Network) insert(blobs [][]byte, p *probe) error {
	for pe, blob := range blobs {
		var their name
		if err := peers.Decode(blob, pe, "name", &their); err != nil {
			return err
		}
		if !n.cfg.Far[pe] {
			continue
		}
		numbers, err := n.av.Insert(their.Addr)
		if err != nil {
			return fmt.Errorf("address %q of PE %d: %w", their.Addr, pe, err)
		}
		n.peers[pe].dest = numbers[0]
		if p != nil {
			if err := n.Import(p.regions, pe, their.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Provider returns the name of the provider.
func (n *Network) Provider() string { return n.info.Provider }

// Registry returns the provider registry, for more endpoints.
func (n *Network) Registry() *fabric.Registry { return n.registry }

// Pins reports whether NICs carry the bytes; they pin memory when it is registered.
func (n *Network) Pins() bool { return n != nil && n.ops.region != nil }

// Why returns why the Network uses this provider and no better one, and which memory uses a slower
// path.
func (n *Network) Why() []string {
	why := append([]string(nil), n.why...)
	if failed := n.unpinned.Load(); failed != nil {
		why = append(why, fmt.Sprintf("some memory uses a slower path: %v", *failed))
	}
	return why
}

// Shut ends all transfers. No byte of any of them can land here afterwards, so memory can be
// unmapped.
func (n *Network) Shut() error {
	if n == nil || n.ep == nil {
		return nil
	}
	return n.ep.Close()
}

// Close frees the remaining objects.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	var err error
	if n.ops.region != nil {
		err = n.ops.region.Close()
	}
	return errors.Join(err, n.endpoint.close())
}
