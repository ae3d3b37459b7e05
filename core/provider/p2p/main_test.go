// SPDX-License-Identifier: MIT

package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestMain(m *testing.M) {
	gputest.Start()
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	if err := warmUp(); err != nil && !errors.Is(err, fabric.ErrNoData) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := fabrictest.Main(m)
	for _, what := range device.Live() {
		fmt.Fprintln(os.Stderr, "left open:", what)
		code = max(code, 1)
	}
	os.Exit(code)
}

// warmUp uses all that tests use of drivers, which keep descriptors open from the first use on:
// those are no leaks.
func warmUp() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	a, err := openEnd(ctx, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	b, err := openEnd(ctx, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := connect(a, b); err != nil {
		return err
	}
	all, err := device.Devices()
	if err != nil {
		return err
	}
	for dev := -1; dev < min(2, len(all)); dev++ {
		for _, other := range []int{-1, 0} {
			if err := errors.Join(err, warmRoute(a, b, route{dev, other})); err != nil {
				return err
			}
		}
	}
	return nil
}

func warmRoute(a, b *end, r route) error {
	const n = 2 << 20 // by the kernel below, by a copy engine all of it
	local, err := a.openMemory(r.local, 0, n)
	if err != nil {
		return err
	}
	remote, err := b.openMemory(r.remote, 0, n)
	if err != nil {
		return errors.Join(err, local.close())
	}
	rm, err := a.dom.Import(remote.mr.Raw())
	if err == nil {
		op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: rm.Key()}}
		err = a.do(op)
		op.Seg.Len, op.RSeg.Len = 64, 64
		err = errors.Join(err, a.do(op), rm.Close())
	}
	return errors.Join(err, local.close(), remote.close())
}
