// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"fmt"
	"net"
	"time"

	"mori/core/bootstrap/launcher"
	"mori/core/config"
)

const (
	maxSize        = launcher.MaxSize
	defaultTimeout = 300 * time.Second

	// lingerTime is how long rank 0 of a group that broke early reports that to ranks that connect
	// later.
	lingerTime = time.Second

	// The shortest and the longest pause between two attempts to connect.
	firstPause, lastPause = 2 * time.Millisecond, 100 * time.Millisecond
)

// Options are how a group is joined. The zero value is good.
type Options struct {
	// Timeout bounds the joining, and every collective call whose ctx has no deadline. 0 is
	// MORI_BOOTSTRAP_TIMEOUT.
	Timeout time.Duration

	// Name distinguishes groups of one launch. Only JoinLaunched uses it.
	Name string

	radix int           // of the tree
	grace time.Duration // leaveGrace
}

func (o Options) complete() (Options, error) {
	if o.radix == 0 {
		o.radix = radix
	}
	if o.grace == 0 {
		o.grace = leaveGrace
	}
	if o.Timeout < 0 {
		return o, fmt.Errorf("timeout %s is negative", o.Timeout)
	}
	if o.Timeout == 0 {
		s, err := config.Int(config.BootstrapTimeout, int(defaultTimeout/time.Second), 1, 1<<20)
		if err != nil {
			return o, err
		}
		o.Timeout = time.Duration(s) * time.Second
	}
	return o, nil
}

// Join makes this process rank of size ranks, which all call Join with the same id. It returns when
// all have come. If some do not in time, all that came get an error that names them.
func Join(ctx context.Context, id UniqueID, rank, size int, o Options) (Group, error) {
	return wrapJoin(rank, size, func() (*member, error) {
		if err := id.check(); err != nil {
			return nil, err
		}
		o, err := o.complete()
		if err != nil {
			return nil, err
		}
		defer reservations.release(id)
		if rank == 0 {
			return host(ctx, id.secret(), size, o, func(ctx context.Context) (net.Listener, error) { return listenReserved(ctx, id) })
		}
		return join(ctx, rank, size, o, func() ([]target, error) {
			return []target{{addr: id.addr().String(), secret: id.secret()}}, nil
		})
	})
}

// wrapJoin checks the numbers and names the act.
func wrapJoin(rank, size int, f func() (*member, error)) (Group, error) {
	if size < 1 || size > maxSize || rank < 0 || rank >= size {
		return nil, fmt.Errorf("join as rank %d of %d: want a rank from 0 to size-1, and 1 to %d ranks", rank, size, maxSize)
	}
	m, err := f()
	if err != nil {
		return nil, fmt.Errorf("join as rank %d of %d: %w", rank, size, err)
	}
	return m, nil
}

// host is rank 0's way in.
func host(ctx context.Context, secret [secretSize]byte, size int, o Options, listen func(context.Context) (net.Listener, error)) (*member, error) {
	m, start := newMember(0, size, o), time.Now()
	if size == 1 {
		m.assembly.complete()
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	d := openDoor(l, secret, m.assembly.admit)
	defer d.close()
	return m, m.assembly.wait(ctx, start)
}
