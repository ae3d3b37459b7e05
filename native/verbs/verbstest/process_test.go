// SPDX-License-Identifier: MIT

package verbstest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/native/verbs"
)

// A child is this program again, with one of these roles to play.
var roles = map[string]func(*bufio.Scanner) error{
	"peer":  bePeer,
	"reuse": useAgain,
	"keep":  keepQueue,
}

func playRole(*testing.M) int {
	if err := roles[os.Getenv(childEnv)](bufio.NewScanner(os.Stdin)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// bePeer connects a side on device 1 with one of its parent and follows its commands, a word in
// each line.
func bePeer(in *bufio.Scanner) (err error) {
	n, err := openNode(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	s, err := n.newSide(common, allow, 256)
	if err != nil {
		return err
	}
	var peer address
	if err := printAddress(s.address); err != nil {
		return err
	}
	if !in.Scan() || json.Unmarshal(in.Bytes(), &peer) != nil {
		return fmt.Errorf("%q is no address", in.Text())
	}
	if err := s.connect(peer, usual()); err != nil {
		return err
	}
	for fmt.Println("ready"); in.Scan(); {
		if err := s.do(in.Text(), peer); err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
	}
	return nil
}

func printAddress(a address) error {
	text, err := json.Marshal(a)
	fmt.Println(string(text))
	return err
}

// do does one thing and answers in a line.
func (s *side) do(what string, peer address) error {
	switch what {
	case "receive":
		if err := s.receive(1, s.sge(0, 100)); err != nil {
			return err
		}
		fmt.Println("posted")
	case "received":
		wcs, err := poll(s.recv, 1)
		if err != nil {
			return err
		}
		fmt.Println(wcs[0].Status, hex.EncodeToString(s.buf[:wcs[0].Bytes]))
	case "write": // from the end of the buffer to the end of the peer's
		copy(s.buf[bufBytes-5:], "there")
		wr := verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: peer.Addr + bufBytes - 5, RKey: peer.RKey}
		if err := s.post(wr, s.sge(bufBytes-5, 5)); err != nil {
			return err
		}
		wcs, err := poll(s.send, 1)
		if err != nil {
			return err
		}
		fmt.Println(wcs[0].Status)
	case "bytes":
		fmt.Println(hex.EncodeToString(s.buf[:5]))
	}
	return nil
}

type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	err strings.Builder
}

func startChild(tb testing.TB, role string) *child {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tb.Cleanup(cancel)
	c := &child{cmd: exec.CommandContext(ctx, os.Args[0], "-test.run=^$")}
	c.cmd.Env = append(os.Environ(), childEnv+"="+role, "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = &c.err
	in, err := c.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c.in, c.out = in, bufio.NewScanner(out)
	return c
}

// ask sends the child a line, unless it is empty, and returns the line that it answers.
func (c *child) ask(tb testing.TB, what string) string {
	tb.Helper()
	if what != "" {
		if _, err := fmt.Fprintln(c.in, what); err != nil {
			tb.Fatal(err)
		}
	}
	if !c.out.Scan() {
		err := c.end()
		tb.Fatalf("%q has no answer: %v\n%s", what, err, c.err.String())
	}
	return c.out.Text()
}

// stop stops the child, all of its threads.
func (c *child) stop(tb testing.TB) {
	tb.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		running := 0
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.cmd.Process.Pid))
		for _, path := range threads {
			if text, err := os.ReadFile(path); err == nil && !strings.Contains(string(text), "State:\tT") {
				running++
			}
		}
		if err == nil && len(threads) > 0 && running == 0 {
			return
		}
	}
	tb.Fatal("a stopped process goes on")
}

// end lets the child go, and returns how it ended.
func (c *child) end() error {
	_ = c.in.Close()
	return c.cmd.Wait()
}

// withPeer connects a side on device 0 with that of a child on device 1.
func withPeer(tb testing.TB, set ...func(*settings)) (*tester, *child, address) {
	tb.Helper()
	Need(tb, 2)
	t := &tester{TB: tb}
	t.a = t.side(0, common)
	c := startChild(tb, "peer")
	var peer address
	t.ok(json.Unmarshal([]byte(c.ask(tb, "")), &peer))
	mine, err := json.Marshal(t.a.address)
	t.ok(err)
	with := usual()
	for _, f := range set {
		f(&with)
	}
	t.ok(t.a.connect(peer, with))
	if got := c.ask(tb, string(mine)); got != "ready" {
		tb.Fatal(got)
	}
	return t, c, peer
}

// TestPeerProcess does all kinds of work between two processes.
func TestPeerProcess(t *testing.T) {
	x, c, peer := withPeer(t)
	want := noise(x.a.buf[:400000])
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, RemoteAddr: peer.Addr, RKey: peer.RKey, Flags: verbs.Signaled}, x.a.sge(0, 400000)))
	x.ok(x.a.post(verbs.SendWR{ID: 2, Op: verbs.OpRead, RemoteAddr: peer.Addr, RKey: peer.RKey, Flags: verbs.Signaled}, x.a.sge(500000, 400000)))
	x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusSuccess)
	if !bytes.Equal(x.a.buf[500000:900000], want) {
		t.Error("what was read is not what was written")
	}
	if got := c.ask(t, "bytes"); got != hex.EncodeToString(want[:5]) {
		t.Errorf("the peer has %s, want %x", got, want[:5])
	}
	c.ask(t, "receive")
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signaled}, x.a.sge(7, 90)))
	x.ends(x.a.send, verbs.StatusSuccess)
	if got := c.ask(t, "received"); got != "success "+hex.EncodeToString(want[7:97]) {
		t.Errorf("the peer received %s", got)
	}
	if got := c.ask(t, "write"); got != "success" || string(x.a.buf[bufBytes-5:]) != "there" {
		t.Errorf("the peer's write: %s, %q came", got, x.a.buf[bufBytes-5:])
	}
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpFetchAdd, Flags: verbs.Signaled, CompareAdd: 1, RemoteAddr: peer.Addr, RKey: peer.RKey}, x.a.sge(0, 8)))
	x.ends(x.a.send, verbs.StatusSuccess)
	if err := c.end(); err != nil {
		t.Error(err, c.err.String())
	}
}

// TestPeerDies: nobody answers for a process that was killed.
func TestPeerDies(t *testing.T) {
	x, c, peer := withPeer(t)
	write := verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: peer.Addr, RKey: peer.RKey}
	x.ok(x.a.post(write, x.a.sge(0, 8)))
	x.ends(x.a.send, verbs.StatusSuccess)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.end()
	x.ok(x.a.post(write, x.a.sge(0, 8)))
	write.ID = 2
	x.ok(x.a.post(write, x.a.sge(0, 8)))
	x.ends(x.a.send, verbs.StatusRetryExceeded, verbs.StatusFlushed)
	x.state(x.a, verbs.StateErr)
}

// TestPeerStandsStill: a process that is stopped, and not gone, is waited for.
func TestPeerStandsStill(t *testing.T) {
	NeedEmulated(t)
	x, c, peer := withPeer(t)
	Timeout(t, 1)
	c.stop(t)
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: peer.Addr, RKey: peer.RKey}, x.a.sge(0, 8)))
	time.Sleep(50 * time.Millisecond)
	if n, err := x.a.send.Poll(make([]verbs.WC, 1)); n != 0 || err != nil {
		t.Errorf("%d completions came from a peer that stands still: %v", n, err)
	}
	x.ok(c.cmd.Process.Signal(syscall.SIGCONT))
	x.ends(x.a.send, verbs.StatusSuccess)
	if err := c.end(); err != nil {
		t.Error(err, c.err.String())
	}
}

// useAgain closes a domain twice.
func useAgain(*bufio.Scanner) error {
	n, err := openNode(0)
	if err != nil {
		return err
	}
	return errors.Join(n.pd.Close(), n.pd.Close())
}

// keepQueue polls a completion queue that it has closed.
func keepQueue(*bufio.Scanner) error {
	n, err := openNode(0)
	if err != nil {
		return err
	}
	q, err := n.ctx.NewCQ(1, 0, 0)
	if err != nil {
		return err
	}
	_, err = q.Poll(make([]verbs.WC, 1))
	err = errors.Join(err, q.Close())
	_, _ = q.Poll(make([]verbs.WC, 1))
	return err
}

// TestUseAfterTheEnd ends the process, and says why.
func TestUseAfterTheEnd(t *testing.T) {
	NeedEmulated(t)
	for role, words := range map[string]string{
		"reuse": "emulated verbs: ibv_dealloc_pd of a protection domain that was destroyed before",
		"keep":  "emulated verbs: ibv_poll_cq of a completion queue that was destroyed before",
	} {
		c := startChild(t, role)
		if err := c.end(); err == nil || !strings.Contains(c.err.String(), words) {
			t.Errorf("%s: %v\n%s", role, err, c.err.String())
		}
	}
}
