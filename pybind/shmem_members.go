// SPDX-License-Identifier: MIT

package pybind

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// membership holds the PEs of this process. As in OpenSHMEM, a process normally is one PE, shared
// by all its threads. It has several PEs if threads call init at the same time with different
// ranks, each with its own GPU. Then each of these threads has its own PE, and other threads have
// none.
type membership struct {
	only  atomic.Pointer[pe]          // the only PE, if there is one
	bound atomic.Pointer[map[int]*pe] // by thread, if there are several

	mu  sync.Mutex
	all []*pe // including PEs whose init is in progress
}

var members membership

// idle runs jobs that belong to no PE.
var idle queue

var (
	errNoPE     = coded("E_STATE", errors.New("mori.shmem is not initialised: call shmem_init_attr, shmem_torch_process_group_init, shmem_mpi_init or shmem_init first"))
	errOutsider = coded("E_STATE", errors.New("this process has several PEs, one for each thread that called init, and this thread did not"))
)

// current returns the PE of the calling thread.
func current() (*pe, error) {
	if p := members.only.Load(); p != nil {
		return p, nil
	}
	bound := members.bound.Load()
	if bound == nil {
		return nil, errNoPE
	}
	if p := (*bound)[unix.Gettid()]; p != nil {
		return p, nil
	}
	return nil, errOutsider
}

// claim returns the PE of the calling thread, or adds a new one for this rank. If a PE already has
// this rank, or a launcher sets the ranks, claim returns the existing PE, whichever thread calls.
func (m *membership) claim(rank int) (p *pe, made bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	thread := unix.Gettid()
	for _, p := range m.all {
		if p.thread == thread || p.rank == rank || p.rank < 0 || rank < 0 {
			return p, false
		}
	}
	p = &pe{thread: thread, rank: rank}
	m.all = append(m.all, p)
	return p, true
}

// leave removes a PE that claim added, and reports whether no PE is left.
func (m *membership) leave(p *pe) (last bool) {
	m.mu.Lock()
	for i := range m.all {
		if m.all[i] == p {
			m.all = append(m.all[:i:i], m.all[i+1:]...)
			break
		}
	}
	last = len(m.all) == 0
	m.mu.Unlock()
	m.publish()
	return last
}

// publish makes current find the PEs. Once a process has had several PEs, each stays bound to its
// thread until all are gone.
func (m *membership) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	bound := map[int]*pe{}
	for _, p := range m.all {
		if p.World != nil {
			bound[p.thread] = p
		}
	}
	switch {
	case len(m.all) == 0:
		m.only.Store(nil)
		m.bound.Store(nil)
	case len(m.all) == 1 && m.bound.Load() == nil:
		m.only.Store(bound[m.all[0].thread])
	case len(bound) > 0:
		m.bound.Store(&bound)
		m.only.Store(nil)
	}
}
