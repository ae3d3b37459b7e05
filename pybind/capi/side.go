// SPDX-License-Identifier: MIT

package main

// #include <stdlib.h>
// #include "../../native/examples/host.h"
import "C"

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"mori/core/device"
	"mori/core/interchange"
)

func main() {} // never runs: programs load the library

// sides holds the open sides, by number.
var (
	sides  sync.Map
	mu     sync.Mutex
	number uint64
)

// answer reports an error to C: it sets *text and returns the status.
func answer(err error, text **C.char) C.int {
	if err == nil {
		return 0
	}
	*text = C.CString(err.Error())
	return -1
}

// on runs call with a side. It recovers panics, which must not reach C.
func on(id C.uint64_t, text **C.char, call func(s *interchange.Side) error) C.int {
	return answer(func() (err error) {
		defer guard(&err)
		s, ok := sides.Load(uint64(id))
		if !ok {
			return fmt.Errorf("no such side %d", uint64(id))
		}
		return call(s.(*interchange.Side))
	}(), text)
}

func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

//export mori_side_open
func mori_side_open(o *C.struct_mori_side_options, side *C.uint64_t, text **C.char) C.int {
	return answer(func() (err error) {
		defer guard(&err)
		if folder := C.GoString(o.folder); folder != "" {
			device.SetKernelDir(folder)
		}
		opts := interchange.Options{Device: C.GoString(o.device), GPU: C.GoString(o.gpu), Limit: time.Duration(float64(o.limit) * float64(time.Second)),
			Receives: int(o.receives), Module: C.GoString(o.module)}
		if names := C.GoString(o.functions); names != "" {
			opts.Functions = strings.Split(names, ",")
		}
		s, err := interchange.Open(opts)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		number++
		sides.Store(number, s)
		*side = C.uint64_t(number)
		return nil
	}(), text)
}

//export mori_side_gpu
func mori_side_gpu(side C.uint64_t, name, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		*name = C.CString(s.GPU())
		return nil
	})
}

//export mori_side_discover
func mori_side_discover(side C.uint64_t, lines, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		found, err := s.Discover()
		if err != nil {
			return err
		}
		var b strings.Builder
		for _, f := range found {
			fmt.Fprintf(&b, "  %s\n", f.Name)
			for _, port := range f.Ports {
				fmt.Fprintf(&b, "    port %s\n", port)
			}
		}
		*lines = C.CString(b.String())
		return nil
	})
}

//export mori_side_device
func mori_side_device(side C.uint64_t, words, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		found, err := s.OpenDevice()
		if err == nil {
			*words = C.CString(found)
		}
		return err
	})
}

//export mori_side_endpoint
func mori_side_endpoint(side C.uint64_t, number *C.uint32_t, address, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		end, err := s.Endpoint()
		if err == nil {
			*number, *address = C.uint32_t(end.Number), C.CString(hex.EncodeToString(end.Address))
		}
		return err
	})
}

// receive passes a side the bytes that the other side has sent.
func receive(side C.uint64_t, what *C.char, text **C.char, step func(s *interchange.Side, b []byte) error) C.int {
	return on(side, text, func(s *interchange.Side) error {
		b, err := hex.DecodeString(C.GoString(what))
		if err != nil {
			return fmt.Errorf("read the other side's description: %w", err)
		}
		return step(s, b)
	})
}

//export mori_side_connect
func mori_side_connect(side C.uint64_t, address *C.char, text **C.char) C.int {
	return receive(side, address, text, (*interchange.Side).Connect)
}

//export mori_side_register
func mori_side_register(side C.uint64_t, bytes C.uint64_t, addr *C.uint64_t, keys, shown, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		m, err := s.Register(uint64(bytes))
		if err == nil {
			*addr, *keys, *shown = C.uint64_t(m.Addr), C.CString(m.Keys), C.CString(hex.EncodeToString(m.Shown))
		}
		return err
	})
}

//export mori_side_meet
func mori_side_meet(side C.uint64_t, shown *C.char, text **C.char) C.int {
	return receive(side, shown, text, (*interchange.Side).SetPeer)
}

//export mori_side_close
func mori_side_close(side C.uint64_t, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		sides.Delete(uint64(side))
		return s.Close()
	})
}

//export mori_side_view
func mori_side_view(side C.uint64_t, view *C.struct_mori_view, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		v, err := s.View()
		if err != nil {
			return err
		}
		one := func(yes bool) C.uint32_t {
			if yes {
				return 1
			}
			return 0
		}
		view.queue, view.proxy, view.cpu = C.uint64_t(v.Queue), one(v.Proxy), one(s.OnCPU())
		view.mine = C.struct_mori_memory{C.uint64_t(v.Mine.Addr), C.uint64_t(v.Mine.Bytes), C.uint32_t(v.Mine.LKey), C.uint32_t(v.Mine.RKey)}
		view.peer = C.struct_mori_memory{C.uint64_t(v.Peer.Addr), C.uint64_t(v.Peer.Bytes), C.uint32_t(v.Peer.LKey), C.uint32_t(v.Peer.RKey)}
		view.words, view.limit = C.uint64_t(v.Words), C.uint64_t(v.Limit)
		return nil
	})
}

// bytesAt returns a view of n bytes that the caller owns.
func bytesAt(at unsafe.Pointer, n C.uint64_t) ([]byte, error) {
	if at == nil || n == 0 || n > 1<<40 {
		return nil, fmt.Errorf("%d bytes of the caller at %p", uint64(n), at)
	}
	return unsafe.Slice((*byte)(at), int(n)), nil
}

//export mori_side_fill
func mori_side_fill(side, offset C.uint64_t, from unsafe.Pointer, n C.uint64_t, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		b, err := bytesAt(from, n)
		if err != nil {
			return err
		}
		return s.Fill(uint64(offset), b)
	})
}

//export mori_side_fetch
func mori_side_fetch(side, offset C.uint64_t, to unsafe.Pointer, n C.uint64_t, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		b, err := bytesAt(to, n)
		if err != nil {
			return err
		}
		return s.Fetch(uint64(offset), b)
	})
}

//export mori_side_receive
func mori_side_receive(side, offset, n C.uint64_t, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error { return s.Receive(uint64(offset), uint64(n)) })
}

//export mori_side_received
func mori_side_received(side C.uint64_t, n, immediate *C.uint32_t, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		a, err := s.Received(context.Background())
		*n, *immediate = C.uint32_t(a.Bytes), C.uint32_t(a.Immediate)
		return err
	})
}

//export mori_side_launch
func mori_side_launch(side C.uint64_t, function *C.char, args unsafe.Pointer, n C.uint64_t, threads C.uint32_t, text **C.char) C.int {
	return on(side, text, func(s *interchange.Side) error {
		b, err := bytesAt(args, n)
		if err != nil {
			return errors.Join(fmt.Errorf("launch %s", C.GoString(function)), err)
		}
		return s.Launch(context.Background(), C.GoString(function), append([]byte(nil), b...), uint32(threads))
	})
}
