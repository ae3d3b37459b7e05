// SPDX-License-Identifier: MIT

package pybind

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// membership is which PEs this process is. As OpenSHMEM has it, a process is one, of which every
// thread is. It is several if threads that say that they are different ranks come to init at one
// time, each with a GPU of its own: then a thread is what it has become, and others are none.
type membership struct {
	only  atomic.Pointer[pe]          // the one that there is
	bound atomic.Pointer[map[int]*pe] // by thread, if there are several

	mu  sync.Mutex
	all []*pe // those that are made, too
}

var members membership

// idle runs jobs of no PE.
var idle queue

var (
	errNoPE     = coded("E_STATE", errors.New("mori.shmem is not initialised: call shmem_init_attr, shmem_torch_process_group_init, shmem_mpi_init or shmem_init first"))
	errOutsider = coded("E_STATE", errors.New("this process has several PEs, one for each thread that called init, and this thread did not"))
)

// current is the PE of the calling thread.
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

// claim finds the PE that the calling thread is or is becoming, as this rank, or begins one. An
// init of a rank that the process is already, or of one that a launcher sets, is of that PE,
// whichever thread calls.
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

// leave ends what claim began, and reports whether there is no PE left.
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

// publish lets calls find what there is. Of several PEs each stays with its thread until all are
// gone.
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
