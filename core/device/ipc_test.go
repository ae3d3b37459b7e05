// SPDX-License-Identifier: MIT

package device

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// peerEnv makes this program the other process of a test: "0 real" or the number of a vendor and
// its emulated driver.
const peerEnv = "MORI_DEVICE_TEST_PEER"

// An order is what the other process is asked to do with memory that it is handed, and its answer.
type order struct {
	Handle IPCHandle
	Device int
	Value  byte
	N      uint64
	FD     bool // of virtual memory: the descriptor is number 3
	Export bool // nothing of the above: it allocates N bytes, and answers the handle

	Sum   uint64 // of the bytes found before
	Error string
}

// peerMain takes orders, a line each.
func peerMain() int {
	var v Vendor
	var path string
	if _, err := fmt.Sscanf(os.Getenv(peerEnv), "%d %s", &v, &path); err != nil {
		return 2
	}
	s := here
	if path != "real" {
		s = emulatedSystemAt(v, path)
	}
	devices, err := s.all()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// Before any context is made: a driver answers nevertheless.
	if p, err := s.lookup(addrOf(make([]byte, 8))); err != nil || p.Kind != Unknown {
		fmt.Fprintln(os.Stderr, "look up host memory first of all:", p, err)
		return 2
	}
	if err := serve(devices); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	for _, what := range Live() {
		fmt.Fprintln(os.Stderr, "left open in the other process:", what)
	}
	return min(len(Live()), 1)
}

// serve answers orders until there are no more, and keeps what it exports until then.
func serve(devices []*Device) (err error) {
	out := json.NewEncoder(os.Stdout)
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if in.Decode(&o) != nil {
			return nil
		}
		d := devices[o.Device]
		failed := o.do
		if o.Export {
			m, err2 := d.Alloc(o.N)
			if err2 != nil {
				return err2
			}
			defer func() { err = errors.Join(err, m.Close()) }()
			failed = func(*Device) (err error) { o.Handle, err = d.ExportIPC(m.Addr()); return err }
		}
		if err := failed(d); err != nil {
			o.Error = err.Error()
		}
		if err := out.Encode(&o); err != nil {
			return err
		}
	}
}

// do opens the memory twice, sums it up and fills it.
func (o *order) do(d *Device) (err error) {
	var addr uint64
	if o.FD {
		v, err := d.Virtual()
		if err != nil {
			return err
		}
		m, r, done, err := importFD(v, o.N)
		if err != nil {
			return err
		}
		defer done()
		_, addr = m, r.Addr()
	} else {
		first, err := d.OpenIPC(o.Handle)
		if err != nil {
			return err
		}
		second, err := d.OpenIPC(o.Handle)
		if err != nil {
			return errors.Join(err, first.Close())
		}
		if first.Addr() != second.Addr() {
			return fmt.Errorf("two addresses: %#x and %#x", first.Addr(), second.Addr())
		}
		if err := first.Close(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, second.Close()) }()
		addr = second.Addr()
	}
	return o.use(d, addr)
}

func (o *order) use(d *Device, addr uint64) error {
	s, err := d.NewStream(Normal)
	if err != nil {
		return err
	}
	h, err := d.AllocHost(o.N)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(s.Copy(h.Addr(), addr, o.N), s.Wait(ctx))
	if err == nil {
		o.Sum = sum(h.Addr(), o.N)
		err = errors.Join(s.Set(addr, o.Value, o.N), s.Wait(ctx))
	}
	return errors.Join(err, h.Close(), s.Close())
}

// A peer is the other process.
type peer struct {
	in   io.WriteCloser
	out  *bufio.Reader
	stop func() // ends it
}

func startPeer(t *testing.T, b *bench, files ...*os.File) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), peerEnv+"="+b.env, "GORACE=atexit_sleep_ms=0")
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	in := must[io.WriteCloser](t)(cmd.StdinPipe())
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	ok(t, cmd.Start())
	p := &peer{in: in, out: bufio.NewReader(out)}
	p.stop = sync.OnceFunc(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
		cancel()
	})
	t.Cleanup(p.stop)
	return p
}

func (p *peer) ask(t *testing.T, o order) order {
	t.Helper()
	line := must[[]byte](t)(json.Marshal(o))
	must[int](t)(p.in.Write(append(line, '\n')))
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the other process does not answer: %v", err)
	}
	var answer order
	ok(t, json.Unmarshal(text, &answer))
	return answer
}

func TestIPC(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		p := startPeer(t, b)
		for _, d := range b.devices {
			const size, offset, n = 8 << 20, 3<<20 + 64, 4096
			m, err := d.Alloc(size)
			closing(t, m, err)
			s, err := d.NewStream(Normal)
			closing(t, s, err)
			ok(t, s.Set(m.Addr(), 1, size))
			ok(t, s.Set(m.Addr()+offset, 2, n))
			settle(t, s)
			h := must[IPCHandle](t)(d.ExportIPC(m.Addr() + offset))
			if h.Offset != offset || h.Bytes < size {
				t.Errorf("offset %d, %d bytes", h.Offset, h.Bytes)
			}
			// The other process maps it on each of its devices, and writes.
			for i := range b.devices {
				o := order{Handle: h, Device: i, Value: byte(10 + i), N: n}
				got := p.ask(t, o)
				if got.Error != "" {
					t.Fatal(got.Error)
				}
				want := uint64(2 * n)
				if i > 0 {
					want = uint64(10+i-1) * n
				}
				if got.Sum != want {
					t.Errorf("device %d: the other process found a sum of %d, not %d", i, got.Sum, want)
				}
				if v := uint32(10+i) * 0x01010101; !all(words(t, s, m.Addr()+offset, n/4), v) {
					t.Errorf("device %d: the other process's bytes are not here", i)
				}
			}
			if !all(words(t, s, m.Addr()+offset-64, 16), 0x01010101) || !all(words(t, s, m.Addr()+offset+n, 16), 0x01010101) {
				t.Error("bytes beside were changed")
			}
		}
	})
}

func TestOwnHandle(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		m := must[*Memory](t)(d.Alloc(1 << 21))
		h := must[IPCHandle](t)(d.ExportIPC(m.Addr() + 128))
		mine := must[*IPCMemory](t)(d.OpenIPC(h))
		if mine.Addr() != m.Addr()+128 || mine.Bytes() < 1<<21-128 {
			t.Errorf("%#x for %#x", mine.Addr(), m.Addr())
		}
		ok(t, mine.Close())
		ok(t, m.Close())
		if stale, err := d.OpenIPC(h); err == nil {
			t.Errorf("freed memory was opened at %#x", stale.Addr())
			ok(t, stale.Close())
		}
	})
}

func TestExportRefused(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		h, err := d.AllocHost(4096)
		closing(t, h, err)
		var local [8]byte
		for what, addr := range map[string]uint64{"pinned host": h.Addr(), "host": addrOf(local[:])} {
			if _, err := d.ExportIPC(addr); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), what+" memory") {
				t.Error(what, err)
			}
		}
		if len(b.devices) > 1 {
			m, err := b.devices[1].Alloc(4096)
			closing(t, m, err)
			if _, err := d.ExportIPC(m.Addr()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "of "+b.devices[1].String()) {
				t.Error(err)
			}
		}
		if _, err := d.OpenIPC(IPCHandle{Offset: 64, Bytes: 64}); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		if _, err := d.OpenIPC(IPCHandle{Bytes: 64}); err == nil {
			t.Error("a handle of nothing was opened")
		}
	})
}

// TestDeadPeer: memory of a process lasts as long as it does, and a handle of a process that is
// gone is refused.
func TestDeadPeer(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d, p := b.devices[0], startPeer(t, b)
		answer := p.ask(t, order{Export: true, N: 1 << 20})
		if answer.Error != "" {
			t.Fatal(answer.Error)
		}
		m := must[*IPCMemory](t)(d.OpenIPC(answer.Handle))
		s, err := d.NewStream(Normal)
		closing(t, s, err)
		ok(t, s.Set(m.Addr(), 1, m.Bytes()))
		settle(t, s)
		ok(t, m.Close())
		p.stop()
		if m, err := d.OpenIPC(answer.Handle); err == nil {
			t.Errorf("memory of a dead process was opened at %#x", m.Addr())
			ok(t, m.Close())
		} else {
			t.Log(err)
		}
		if n := len(d.ipc.opened); n != 0 {
			t.Errorf("%d mappings", n)
		}
	})
}
