// SPDX-License-Identifier: MIT

package sys

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
)

func TestEvent(t *testing.T) {
	fd, err := Event()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = CloseFD(fd) }()
	for lap := range 2 {
		EventClear(fd) // does not block
		if Readable(fd) {
			t.Fatalf("lap %d: readable before it was set", lap)
		}
		EventSet(fd)
		EventSet(fd)
		if !Readable(fd) {
			t.Fatalf("lap %d: not readable after it was set", lap)
		}
		EventClear(fd)
		if Readable(fd) {
			t.Fatalf("lap %d: readable after it was cleared", lap)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		EventSet(fd)
		EventClear(fd)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPidfd(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := Pidfd(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer CloseFD(fd)
	if Readable(fd) {
		t.Fatal("a live process is readable")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !Readable(fd) {
		t.Fatal("a dead process is not readable")
	}
	if _, err := Pidfd(cmd.Process.Pid); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("pidfd of a dead process: %v", err)
	}
}
