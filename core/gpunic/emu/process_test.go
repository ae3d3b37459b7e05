// SPDX-License-Identifier: MIT

package emu_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
	"mori/core/internal/sys"
	"mori/native/abi"
)

// childWire is set for the process that TestTwoProcesses starts: the test binary again.
const childWire = "MORI_EMU_TEST_CHILD"

// An introduction is what one process sends the other, as a line of text.
func introduction(q *mlx5.Queue, r abi.NICMemory) string {
	b := make([]byte, mlx5.RemoteEndBytes+abi.NICMemoryBytes)
	q.End().Put(b)
	copy(b[mlx5.RemoteEndBytes:], abi.Bytes(&r))
	return hex.EncodeToString(b)
}

func parseIntroduction(line string) (end mlx5.RemoteEnd, memory abi.NICMemory, err error) {
	b, err := hex.DecodeString(line)
	if err == nil && len(b) != mlx5.RemoteEndBytes+abi.NICMemoryBytes {
		err = fmt.Errorf("%d bytes", len(b))
	}
	if err != nil {
		return end, memory, err
	}
	copy(abi.Bytes(&memory), b[mlx5.RemoteEndBytes:])
	return end, memory, end.Parse(b)
}

// child opens a NIC, connects to the parent's, writes 4096 times the byte 42 into its memory, and
// waits for its end.
func child(wire string) error {
	nic, err := emu.New(emu.Options{Name: "emu1", Wire: wire})
	if err != nil {
		return err
	}
	dev, err := mlx5.Open(nic)
	if err != nil {
		return err
	}
	mem, err := sys.Alloc(8192)
	if err != nil {
		return err
	}
	region, err := dev.Register(sys.AddrOf(mem), 8192, mlx5.AccessAll)
	if err != nil {
		return err
	}
	q, err := dev.NewQueue(mlx5.QueueConfig{SQLog: 4})
	if err != nil {
		return err
	}
	fmt.Println(introduction(q, region.View()))
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return io.ErrUnexpectedEOF
	}
	end, memory, err := parseIntroduction(in.Text())
	if err != nil {
		return err
	}
	if err := q.Connect(end, mlx5.PathConfig{}); err != nil {
		return err
	}
	for i := range 4096 {
		mem[i] = 42
	}
	p := mlx5test.NewPoster(q)
	v := region.View()
	if _, err := p.Write(mlx5test.Span{Addr: v.Addr, N: 4096, Key: v.LKey}, mlx5test.Span{Addr: memory.Addr, Key: memory.RKey}, 0); err != nil {
		return err
	}
	if err := p.Quiet(patience); err != nil {
		return err
	}
	fmt.Println("done")
	in.Scan()
	return nil
}

// TestTwoProcesses writes in both directions between two processes, then kills one: the other's
// work ends with an error.
func TestTwoProcesses(t *testing.T) {
	for _, wire := range []string{"unix", "tcp"} {
		t.Run(wire, func(t *testing.T) {
			nic, dev := openNIC(t, emu.Options{Wire: wire})
			a := newSide(t, nic, dev, mlx5.QueueConfig{SQLog: 4}, 8192, mlx5.AccessAll)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childWire+"="+wire)
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			guard := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
			defer guard.Stop()
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			out := bufio.NewScanner(stdout)
			if !out.Scan() {
				t.Fatal("the other process ended")
			}
			end, memory, err := parseIntroduction(out.Text())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Queue.Connect(end, mlx5.PathConfig{Retries: 3}); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(stdin, introduction(a.Queue, a.Region.View()))
			if !out.Scan() || out.Text() != "done" {
				t.Fatalf("the other process says %q", out.Text())
			}
			for i, v := range a.Mem[:4096] {
				if v != 42 {
					t.Fatalf("byte %d is %d, want 42", i, v)
				}
			}
			theirs := mlx5test.Span{Addr: memory.Addr + 4096, Key: memory.RKey}
			at, err := a.post.Write(a.Span(0, 4096), theirs, signalled)
			if err == nil {
				err = a.post.Until(at+1, patience)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if _, err := a.post.Write(a.Span(0, 4096), theirs, 0); err != nil {
				t.Fatal(err)
			}
			fails(t, a.post, mlx5.SyndromeRetry)
			clean(t, a)
		})
	}
}
