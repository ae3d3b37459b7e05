// SPDX-License-Identifier: MIT

package reliability

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"mori/tests/go/lab"

	mio "mori/io"
)

// patience bounds one answer of a peer.
const patience = 75 * time.Second

// A peer is a process with an engine, seen from here.
type peer struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan []byte
	host string
	key  string
	desc []byte
}

// startPeer starts an engine in a process, on host if that is not nil.
func startPeer(t *testing.T, host *lab.Host, args startArgs) *peer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	if host != nil {
		cmd, args.Host = host.Command(os.Args[0]), host.Addr
	}
	cmd.Env = append(append(os.Environ(), "MORI_TEST_PEER=1", "MORI_IO_CP_TIMEOUT_MS=3000"), args.env...)
	if !args.gpus {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+plain)
	}
	cmd.Stderr = io.Discard
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	p := &peer{t: t, cmd: cmd, key: args.Key, host: args.Host, out: make(chan []byte, 1)}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				close(p.out)
				return
			}
			if line[0] == '{' { // else a line of the log
				p.out <- line
			}
		}
	}()
	t.Cleanup(p.kill)
	p.ask("start", args, &p.desc)
	return p
}

func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// signal sends to the peer itself: where it runs on a host, "ip netns exec" has become it.
func (p *peer) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	// Until all of its threads have stopped it may answer.
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("wait until the peer has stopped: %v, status %#x", err, status)
	}
}

// try sends a command and returns the peer's error.
func (p *peer) try(do string, args, result any) error {
	p.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		p.t.Fatal(err)
	}
	line, err := json.Marshal(request{do, raw})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("peer %s is gone: %w", p.key, err)
	}
	select {
	case answer, ok := <-p.out:
		if !ok {
			return fmt.Errorf("peer %s is gone", p.key)
		}
		var r struct {
			Error  string
			Result json.RawMessage
		}
		if err := json.Unmarshal(answer, &r); err != nil {
			p.t.Fatal(err)
		}
		if r.Error != "" {
			return fmt.Errorf("peer %s: %s: %s", p.key, do, r.Error)
		}
		if result != nil && len(r.Result) > 0 {
			if err := json.Unmarshal(r.Result, result); err != nil {
				p.t.Fatal(err)
			}
		}
		return nil
	case <-time.After(patience):
		p.t.Fatalf("peer %s hangs in %s", p.key, do)
		return nil
	}
}

func (p *peer) ask(do string, args, result any) {
	p.t.Helper()
	if err := p.try(do, args, result); err != nil {
		p.t.Fatal(err)
	}
}

// A pair is two peers, a session from the first to the second, and what the second's memory may
// hold.
type pair struct {
	t       *testing.T
	a, b    *peer
	blocks  int
	session int // for writes
	reader  int // for reads
	remote  []byte
	may     [][]int // by block of b's region: blocks of a's pattern, -1 is zero
	back    [][]int // the same of a's second region, which reads fill
	rng     *rand.Rand
	open    map[uint64]postArgs // under way
	uid     uint64
	bytes   int64 // moved and checked
	seed    uint64
}

const seed = 77

// connect makes the peers known to each other, each with a region.
func connect(t *testing.T, a, b *peer, blocks int) *pair {
	t.Helper()
	return connectOver(t, a, b, blocks, seed)
}

// connectOver is connect with regions of the pattern of a seed.
func connectOver(t *testing.T, a, b *peer, blocks int, seed uint64) *pair {
	t.Helper()
	p := &pair{t: t, seed: seed, a: a, b: b, blocks: blocks, rng: rand.New(rand.NewPCG(1, 2)), open: map[uint64]postArgs{}}
	a.ask("know", b.desc, nil)
	b.ask("know", a.desc, nil)
	p.source()
	p.target()
	return p
}

// source gives a its regions: one to write from, one to read to.
func (p *pair) source() {
	p.t.Helper()
	p.a.ask("region", regionArgs{Blocks: p.blocks, Seed: p.seed}, nil)
	p.a.ask("region", regionArgs{Blocks: p.blocks}, nil)
	p.back = zeros(p.blocks)
}

func zeros(n int) [][]int {
	may := make([][]int, n)
	for i := range may {
		may[i] = []int{-1}
	}
	return may
}

// target gives b a fresh region and a a session to it.
func (p *pair) target() {
	p.t.Helper()
	p.b.ask("region", regionArgs{Blocks: p.blocks}, &p.remote)
	p.a.ask("session", sessionArgs{Local: 0, Remote: p.remote}, &p.session)
	p.a.ask("session", sessionArgs{Local: 1, Remote: p.remote}, &p.reader)
	p.may = zeros(p.blocks)
}

// write posts a write of n random blocks to different random places.
func (p *pair) write(n int) postArgs {
	p.t.Helper()
	w := p.newWrite(n)
	p.post(w)
	return w
}

// newWrite is a write that post begins.
func (p *pair) newWrite(n int) (w postArgs) {
	p.uid++
	w = postArgs{Session: p.session, UID: p.uid, Remote: p.rng.Perm(p.blocks)[:n]}
	for range n {
		w.Local = append(w.Local, p.rng.IntN(p.blocks))
	}
	w.beside = &[]postArgs{}
	return w
}

func (p *pair) post(w postArgs) {
	p.t.Helper()
	for _, o := range p.open {
		*w.beside = append(*w.beside, o)
		*o.beside = append(*o.beside, w)
	}
	p.open[w.UID] = w
	p.a.ask("post", w, nil)
}

// ended books how a write ended.
func (p *pair) ended(w postArgs) outcome {
	p.t.Helper()
	var o outcome
	p.a.ask("wait", w.UID, &o)
	p.book(w, o)
	return o
}

// book: a success left its blocks or those of writes that were under way at the same time, and
// nothing else; a failure may have left some.
func (p *pair) book(w postArgs, o outcome) {
	p.t.Helper()
	if o.Code == int(mio.CodeInProgress) {
		p.t.Fatalf("transfer %d hangs", w.UID)
	}
	delete(p.open, w.UID)
	if o.Code == int(mio.CodeSuccess) {
		for _, r := range w.Remote {
			p.may[r] = nil
		}
	}
	for _, v := range append(*w.beside, w) {
		for i, r := range v.Remote {
			if (v.UID == w.UID || slices.Contains(w.Remote, r)) && !slices.Contains(p.may[r], v.Local[i]) {
				p.may[r] = append(p.may[r], v.Local[i])
			}
		}
	}
	p.bytes += int64(len(w.Remote)) * block
}

// succeed waits for a success.
func (p *pair) succeed(w postArgs) {
	p.t.Helper()
	if o := p.ended(w); o.Code != int(mio.CodeSuccess) {
		p.t.Fatalf("transfer %d: %d %s", w.UID, o.Code, o.Text)
	}
}

// read moves n random blocks back, while no write is under way, and books what they may hold.
func (p *pair) read(n int) outcome {
	p.t.Helper()
	p.uid++
	w := postArgs{Session: p.reader, Read: true, UID: p.uid, Local: p.rng.Perm(p.blocks)[:n]}
	for range n {
		w.Remote = append(w.Remote, p.rng.IntN(p.blocks))
	}
	var o outcome
	p.a.ask("post", w, nil)
	p.a.ask("wait", w.UID, &o)
	for i, l := range w.Local {
		if o.Code == int(mio.CodeSuccess) {
			p.back[l] = nil
		}
		for _, k := range p.may[w.Remote[i]] {
			if !slices.Contains(p.back[l], k) {
				p.back[l] = append(p.back[l], k)
			}
		}
	}
	p.bytes += int64(n) * block
	return o
}

// verify holds both sides' memory against the model.
func (p *pair) verify() {
	p.t.Helper()
	p.hold(p.b, p.regions()-1, p.may)
	p.hold(p.a, 1, p.back)
}

// hold holds a region of one side against what it may have.
func (p *pair) hold(side *peer, region int, may [][]int) {
	p.t.Helper()
	var wrong []int
	side.ask("verify", verifyArgs{Region: region, Seed: p.seed, May: may}, &wrong)
	if len(wrong) > 0 {
		p.t.Fatalf("%d of %d blocks of %s hold what nobody moved there, the first is %d", len(wrong), p.blocks, side.key, wrong[0])
	}
}

func (p *pair) regions() int {
	var d mio.EngineInfo
	p.b.ask("describe", nil, &d)
	return d.Regions
}

// hasArrived waits until b knows of a transfer.
func (p *pair) hasArrived(w postArgs) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var there bool
		if p.b.ask("arrived", arrivedArgs{p.a.key, w.UID}, &there); there {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("b was never told of transfer %d", w.UID)
		}
	}
}
