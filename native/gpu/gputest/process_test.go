// SPDX-License-Identifier: MIT

package gputest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"mori/native/abi"
	"mori/native/gpu"
)

// A child is this program again, with one of roles to play.
var roles = map[string]func(gpu.Device) error{
	"driver": func(d gpu.Device) error { _, err := fmt.Println(d.Driver.Path()); return err },
	"owner":  own,
	"early":  freeEarly,
	"trap":   trap,
	"listed": freeListed,
}

func playRole(*testing.M) int {
	d, err := driver()
	if err == nil {
		err = roles[os.Getenv(childEnv)](d.Device(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err strings.Builder
}

func startChild(t *testing.T, role string, environment ...string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c := &child{cmd: exec.CommandContext(ctx, os.Args[0], "-test.run=^$")}
	c.cmd.Env = append(append(os.Environ(), childEnv+"="+role, "GORACE=atexit_sleep_ms=0"), environment...)
	c.cmd.Stderr = &c.err
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	t.Cleanup(cancel)
	return c
}

func (c *child) line() string {
	text, _ := c.out.ReadString('\n')
	return strings.TrimSpace(text)
}

// end lets the child go, and returns how it ended and what it said of that.
func (c *child) end() (string, error) {
	_ = c.in.Close()
	_, _ = io.Copy(io.Discard, c.out)
	err := c.cmd.Wait()
	return c.err.String(), err
}

// ownBytes are as many as are an allocation of its own: NVIDIA's driver gives smaller ones out of a
// common one, which the handle is of.
const ownBytes = 1 << 21

// own exports an allocation that is 1, prints its handle, and frees it on request. Then it prints
// the sum of its bytes before, and waits for the end.
func own(d gpu.Device) error {
	const n = ownBytes
	addr, err := d.Alloc(n)
	if err != nil {
		return err
	}
	host, _, err := d.AllocHost(n)
	if err != nil {
		return err
	}
	h, err := d.IPCHandle(addr)
	if err = errors.Join(err, defaultStream(d).Set(addr, 1, n), wait(d)); err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(h[:]))
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil
	}
	if err := errors.Join(defaultStream(d).Copy(host, addr, n), wait(d)); err != nil {
		return err
	}
	sum := 0
	for _, b := range bytesAt(host, n) {
		sum += int(b)
	}
	err = d.Free(addr)
	// Its descriptor's number is another's now.
	if _, err2 := d.Alloc(n); err != nil || err2 != nil {
		return errors.Join(err, err2)
	}
	fmt.Println(sum)
	_, _ = in.ReadString('\n')
	return nil
}

// defaultStream returns the default stream of a device.
func defaultStream(d gpu.Device) gpu.Stream { return gpu.Stream{Device: d} }

func wait(d gpu.Device) error {
	for range 200000 {
		if done, err := defaultStream(d).Done(); done || err != nil {
			return err
		}
		time.Sleep(50 * time.Microsecond)
	}
	return errors.New("the device does not end")
}

func (c *child) handle(t *testing.T) (h [gpu.HandleSize]byte) {
	t.Helper()
	line := c.line()
	if n, err := hex.Decode(h[:], []byte(line)); err != nil || n != len(h) {
		text, err2 := c.end()
		t.Fatalf("%q: %v, %v\n%s", line, err, err2, text)
	}
	return h
}

// TestMemoryOfAnotherProcess: both see what the other writes, inside of the allocation too; a
// handle lasts no longer than its memory.
func TestMemoryOfAnotherProcess(t *testing.T) {
	r := newRig(t, 0)
	c := startChild(t, "owner")
	h := c.handle(t)
	addr, err := r.OpenIPC(&h)
	r.ok(err)
	if again, err := r.OpenIPC(&h); !Real() && !errors.Is(err, gpu.ErrDuplicate) {
		t.Errorf("one handle was opened twice, at %#x and %#x: %v", addr, again, err)
	}
	if !only(r.read(addr+ownBytes-hostBytes, hostBytes), 1) {
		t.Error("the owner's bytes are not here")
	}
	r.ok(r.stream.Set(addr+1<<15, 2, 1<<10))
	r.settle(r.stream)
	r.ok(r.CloseIPC(addr))
	if _, err := fmt.Fprintln(c.in, "free it"); err != nil {
		t.Fatal(err)
	}
	if got, want := c.line(), fmt.Sprint(ownBytes+1<<10); got != want {
		t.Errorf("the owner has a sum of %s, not %s", got, want)
	}
	if addr, err := r.OpenIPC(&h); err == nil {
		t.Errorf("freed memory was opened at %#x", addr)
	}
	if text, err := c.end(); err != nil {
		t.Error(err, text)
	}
	if addr, err := r.OpenIPC(&h); err == nil {
		t.Errorf("memory of a process that is gone was opened at %#x", addr)
	}
	if addr, err := r.OpenIPC(new([gpu.HandleSize]byte)); err == nil {
		t.Errorf("a handle of nothing was opened at %#x", addr)
	}
}

// TestAHandleOfThisProcess is not for it.
func TestAHandleOfThisProcess(t *testing.T) {
	r := newRig(t, 0)
	h, err := r.IPCHandle(r.memory(1<<20, 0))
	r.ok(err)
	if addr, err := r.OpenIPC(&h); err == nil {
		t.Errorf("opened at %#x", addr)
	}
}

// freeEarly frees memory that a copy needs which waits.
func freeEarly(d gpu.Device) error {
	addr, err := d.Alloc(1 << 20)
	if err != nil {
		return err
	}
	s, err := d.NewStream(0)
	if err != nil {
		return err
	}
	hold(1)
	return errors.Join(s.Set(addr, 1, 1<<20), d.Free(addr))
}

// freeListed frees memory that the list of a launch names which waits.
func freeListed(d gpu.Device) error {
	image, err := kernelFile(d.Driver, "io_copy_blocks")
	if err != nil {
		return err
	}
	m, err := d.LoadModule(image)
	if err != nil {
		return err
	}
	f, err := m.Function("mori_io_copy_blocks")
	if err != nil {
		return err
	}
	host, _, err := d.AllocHost(4096)
	if err != nil {
		return err
	}
	addr, err := d.Alloc(4096)
	if err != nil {
		return err
	}
	*at[abi.IOSegment](host) = abi.IOSegment{Destination: addr + 512, Source: host + 1024, Bytes: 100}
	hold(1)
	grid := &gpu.Grid{Blocks: [3]uint32{1, 1, 1}, Threads: [3]uint32{32, 1, 1}}
	return errors.Join(f.Launch(grid, defaultStream(d), abi.Bytes(&abi.IOCopyBlocksArgs{List: host, Count: 1, Total: 100})), d.Free(addr))
}

// TestFreedTooEarly: a real GPU waits, or writes to memory that is another's by then.
func TestFreedTooEarly(t *testing.T) {
	NeedEmulated(t)
	for role, words := range map[string]string{"early": "while a memset on device 0", "listed": "while a kernel on device 0"} {
		text, err := startChild(t, role).end()
		if err == nil || !strings.Contains(text, "emulated GPU: ") || !strings.Contains(text, "Free") || !strings.Contains(text, words) {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

// trap has a barrier wait for a PE that does not come. The kernel reports it and traps: then the
// device is lost, and the process continues.
func trap(d gpu.Device) error {
	image, err := kernelFile(d.Driver, "shmem_barrier")
	if err != nil {
		return err
	}
	m, err := d.LoadModule(image)
	if err != nil {
		return err
	}
	state, _, err := m.Global("mori_shmem_state")
	if err != nil {
		return err
	}
	f, err := m.Function("mori_shmem_barrier")
	if err != nil {
		return err
	}
	const peersAt, reportAt, stateAt = 16384, 20480, 24576 // heaps are at 0 and 8192
	host, seen, err := d.AllocHost(1 << 16)
	if err != nil {
		return err
	}
	for i, peer := range reached(seen, seen+8192) {
		*at[abi.ShmemPeer](host + peersAt + uint64(i*abi.ShmemPeerBytes)) = peer
	}
	*at[abi.ShmemState](host + stateAt) = abi.ShmemState{
		Version: abi.ShmemStateVersion, NPEs: 2, Heap: seen, HeapBytes: 4096, WaitLimit: 50e6,
		Peers: seen + peersAt, Report: seen + reportAt,
	}
	grid := &gpu.Grid{Blocks: [3]uint32{1, 1, 1}, Threads: [3]uint32{32, 1, 1}}
	if err := errors.Join(defaultStream(d).Copy(state, host+stateAt, abi.ShmemStateBytes), f.Launch(grid, defaultStream(d), nil)); err != nil {
		return err
	}
	if err := wait(d); !errors.Is(err, gpu.ErrLost) {
		return fmt.Errorf("a kernel that trapped ended with %w", err)
	}
	if _, err := d.Alloc(64); !errors.Is(err, gpu.ErrLost) {
		return fmt.Errorf("the device goes on: %w", err)
	}
	if at[abi.WaitReport](host+reportAt).Ready != 1 {
		return errors.New("the kernel reported nothing")
	}
	fmt.Println("lost and reported")
	return nil
}

func TestAKernelThatTraps(t *testing.T) {
	newRig(t, 0)
	c := startChild(t, "trap")
	got := c.line()
	if text, err := c.end(); err != nil || got != "lost and reported" {
		t.Errorf("%q, %v\n%s", got, err, text)
	}
}

// TestWorkThatFails: the device is lost when the turn of the work comes.
func TestWorkThatFails(t *testing.T) {
	NeedEmulated(t)
	text, err := startChild(t, "owner", "FAKE_GPU=work=719").end()
	if err == nil || !strings.Contains(text, "(719)") {
		t.Errorf("%v\n%s", err, text)
	}
}
