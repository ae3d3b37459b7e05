// SPDX-License-Identifier: MIT

package shm

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

const strangerVariable = "MORI_SHM_TEST_STRANGER"

// strangerProcess maps zeros at the address of the target's region and reports whether they were
// changed.
func strangerProcess() {
	at, err := strconv.ParseUint(os.Getenv(strangerVariable), 10, 64)
	if err != nil {
		panic(err)
	}
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(at), regionBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	fmt.Println(errno)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		touched := 0
		for _, b := range sys.Bytes(at, regionBytes) {
			if b != 0 {
				touched++
			}
		}
		fmt.Println(touched)
	}
}

// startStranger starts a process with the pid of one that has ended, or returns nil.
func startStranger(t *testing.T, pid int, at uint64) (cmd *exec.Cmd, touched func() string) {
	t.Helper()
	for range 20 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("choose the pid of a process: %v", err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), roleVariable+"=stranger", fmt.Sprintf("%s=%d", strangerVariable, at))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
		if cmd.Process.Pid != pid {
			_ = cmd.Process.Kill()
			continue
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "errno 0" {
			t.Skipf("the address is taken in a new process: %s", lines.Text())
		}
		return cmd, func() string {
			fmt.Fprintln(in)
			lines.Scan()
			return lines.Text()
		}
	}
	return nil, nil
}

// TestAPidThatIsUsedAgain ends the target while a child holds its socket open, and another process
// gets its pid. That process's memory is neither written nor read.
func TestAPidThatIsUsedAgain(t *testing.T) {
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		for _, n := range []int{4096, 1 << 20} {
			t.Run(fmt.Sprintf("%v of %d bytes", kind, n), func(t *testing.T) {
				p := startTarget(t, Options{})
				local, _ := memory(t, n)
				for i := range local {
					local[i] = 1
				}
				if err := p.run(p.op(fabric.OpWrite, local)); err != nil {
					t.Fatal(err)
				}
				var heir int
				if _, err := fmt.Sscan(p.do("fork"), &heir); err != nil {
					t.Fatal(err)
				}
				defer syscall.Kill(heir, syscall.SIGKILL)
				if err := p.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = p.cmd.Wait()
				cmd, touched := startStranger(t, p.cmd.Process.Pid, p.base)
				if cmd == nil {
					t.Skip("other processes took the pid")
				}
				if err := p.run(p.op(kind, local)); err == nil || errors.Is(err, syscall.EFAULT) {
					t.Errorf("%v: %v", kind, err)
				}
				if got := touched(); got != "0" {
					t.Errorf("%s bytes of another process were written", got)
				}
				if local[0] != 1 {
					t.Error("bytes of another process were read")
				}
			})
		}
	}
}
