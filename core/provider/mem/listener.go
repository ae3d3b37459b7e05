// SPDX-License-Identifier: MIT

package mem

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// backlogSize bounds the requests that wait for Accept. Connect waits for a place.
const backlogSize = 128

// A listener is a fabric.Listener.
type listener struct {
	network *network
	addr    fabric.Addr
	backlog chan *request
	done    chan struct{}
	close   sync.Once
}

var _ fabric.Listener = (*listener)(nil)

func (l *listener) Addr() fabric.Addr { return l.addr }

func (l *listener) Accept(ctx context.Context) (fabric.ConnReq, error) {
	for {
		select {
		case <-l.done:
			return nil, fabric.ErrClosed
		default:
		}
		select {
		case r := <-l.backlog:
			if r.hand() {
				return r, nil
			}
		case <-l.done:
			return nil, fabric.ErrClosed
		case <-ctx.Done():
			return nil, fmt.Errorf("accept at %s: %w", l.addr, ctx.Err())
		}
	}
}

// Close refuses the requests that were not accepted.
func (l *listener) Close() error {
	l.close.Do(func() {
		l.network.provider.unlist(l)
		close(l.done)
		l.network.Leave()
	})
	return nil
}

// The states of a request. It leaves waiting and handed once each.
const (
	reqWaiting = iota // in the backlog
	reqHanded         // with the application
	reqOver           // answered, or given up by the requester
)

// A request is a fabric.ConnReq.
type request struct {
	asker   *endpoint
	to      fabric.Addr
	private []byte

	mu     sync.Mutex
	state  int
	answer chan answer // holds one
}

// An answer is the result that Connect waits for.
type answer struct {
	reply []byte
	err   error
}

func newRequest(asker *endpoint, to fabric.Addr, private []byte) *request {
	return &request{asker: asker, to: to, private: slices.Clone(private), answer: make(chan answer, 1)}
}

// Peer returns the requester's own name.
func (r *request) Peer() fabric.Addr { return r.asker.name }

func (r *request) Private() []byte { return r.private }

// hand passes the request to the application, unless the requester has given it up.
func (r *request) hand() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != reqWaiting {
		return false
	}
	r.state = reqHanded
	return true
}

// claim reports whether the caller may answer: nobody else has, and the requester still waits.
func (r *request) claim() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == reqOver {
		return false
	}
	r.state = reqOver
	return true
}

// giveUpIfWaiting is claim for a request that no application has seen.
func (r *request) giveUpIfWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != reqWaiting {
		return false
	}
	r.state = reqOver
	return true
}

func (r *request) Reject(private []byte) error {
	if err := util.CheckPrivate(private, limits.MaxPrivate); err != nil {
		return err
	}
	if !r.claim() {
		return fmt.Errorf("reject a request that is over: %w", fabric.ErrInvalid)
	}
	r.answer <- answer{err: &fabric.RejectError{Peer: r.to, Data: slices.Clone(private)}}
	return nil
}
