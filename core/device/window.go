// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/internal/sys"
)

const (
	windowBytes = 64 << 10         // bytes per piece
	windowLimit = 30 * time.Second // time limit of a copy
)

// A Window gives the host access to the memory of a GPU while kernels run there, through its own
// stream and pinned memory. Not safe for concurrent use.
type Window struct {
	stream *Stream
	stage  *HostMemory
}

// NewWindow opens a window to d's memory. warm is n bytes of that memory, which it copies out and
// back: drivers load what they need at the first copy, and may make that wait for kernels. So no
// kernel that waits for the host may run yet.
func (d *Device) NewWindow(warm, n uint64) (_ *Window, err error) {
	w := new(Window)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open a window to %s: %w", d, err), w.Close())
		}
	}()
	if w.stream, err = d.NewStream(Urgent); err != nil {
		return nil, err
	}
	if w.stage, err = d.AllocHost(windowBytes); err != nil {
		return nil, err
	}
	b := make([]byte, min(n, windowBytes))
	if err := w.Read(warm, b); err != nil {
		return nil, err
	}
	if err := w.Write(warm, b); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Window) copy(dst, src, n uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), windowLimit)
	defer cancel()
	if err := w.stream.Copy(dst, src, n); err != nil {
		return err
	}
	return w.stream.Wait(ctx)
}

// Read copies GPU memory at addr to b.
func (w *Window) Read(addr uint64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), windowBytes)
		if err := w.copy(w.stage.Addr(), addr, uint64(n)); err != nil {
			return err
		}
		copy(b[:n], sys.Bytes(w.stage.Addr(), n))
		addr, b = addr+uint64(n), b[n:]
	}
	return nil
}

// Write copies b to GPU memory at addr.
func (w *Window) Write(addr uint64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), windowBytes)
		copy(sys.Bytes(w.stage.Addr(), n), b[:n])
		if err := w.copy(addr, w.stage.Addr(), uint64(n)); err != nil {
			return err
		}
		addr, b = addr+uint64(n), b[n:]
	}
	return nil
}

// Close frees the stream and the pinned memory.
func (w *Window) Close() error {
	var errs []error
	if w.stage != nil {
		errs = append(errs, w.stage.Close())
	}
	if w.stream != nil {
		errs = append(errs, w.stream.Close())
	}
	return errors.Join(errs...)
}
