// SPDX-License-Identifier: MIT

package endtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A Child is this test program, running as another process that executes orders.
type Child struct {
	Cmd *exec.Cmd

	in  io.WriteCloser
	out *bufio.Scanner
}

// An answer is one line of output of a child.
type answer struct {
	Err   string
	Reply json.RawMessage
}

// Start starts this program with an environment variable set. When the test ends, Start's cleanup
// closes the child's input and waits for the child.
func Start(tb testing.TB, variable string) *Child {
	tb.Helper()
	c := &Child{Cmd: exec.Command(os.Args[0], "-test.run=^$")}
	c.Cmd.Env = append(os.Environ(), variable+"=1", "GORACE=atexit_sleep_ms=0")
	c.Cmd.Stderr = os.Stderr
	in, failed := c.Cmd.StdinPipe()
	out, err := c.Cmd.StdoutPipe()
	if err := errors.Join(failed, err); err != nil {
		tb.Fatal(err)
	}
	c.in, c.out = in, bufio.NewScanner(out)
	c.out.Buffer(nil, 1<<20)
	if err := c.Cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = c.in.Close()
		_ = c.Cmd.Wait() // it may have been killed
	})
	return c
}

// Ask sends the child an order and waits until the child has executed it. It decodes the reply into
// what reply points to.
func (c *Child) Ask(order, reply any) error {
	b, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if _, err := c.in.Write(append(b, '\n')); err != nil {
		return err
	}
	if !c.out.Scan() {
		return fmt.Errorf("the child ended: %w", errors.Join(c.out.Err(), io.EOF))
	}
	var a answer
	if err := json.Unmarshal(c.out.Bytes(), &a); err != nil {
		return fmt.Errorf("the child says %q: %w", c.out.Text(), err)
	}
	if a.Err != "" {
		return errors.New(a.Err)
	}
	return json.Unmarshal(a.Reply, reply)
}

// Stop suspends a child with SIGSTOP and returns when all its threads have stopped. Until then the
// child may still answer.
func Stop(child *exec.Cmd) error {
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var s syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &s, syscall.WUNTRACED, nil); err != nil {
		return fmt.Errorf("wait until the child stops: %w", err)
	}
	if !s.Stopped() {
		return fmt.Errorf("the child has ended: %v", s)
	}
	return nil
}

// Serve runs in the child. It executes orders until there are no more, and reports whether it
// could.
func Serve[Order, Reply any](obey func(Order) (Reply, error)) bool {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var order Order
		var a answer
		err := json.Unmarshal(in.Bytes(), &order)
		if err == nil {
			var reply Reply
			if reply, err = obey(order); err == nil {
				a.Reply, err = json.Marshal(reply)
			}
		}
		if err != nil {
			a = answer{Err: err.Error()}
		}
		if out.Encode(a) != nil {
			return false
		}
	}
	return in.Err() == nil
}
