// SPDX-License-Identifier: MIT

package reliability

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/logging/logtest"
	"mori/io"
	"mori/native/gpu/gputest"
)

// plain is where libraries are looked for by processes that shall see no emulated GPU.
var plain string

// TestMain is the peer if it was started as one.
func TestMain(m *testing.M) {
	logtest.Quiet()
	if os.Getenv("MORI_TEST_PEER") != "" {
		servePeer()
		return
	}
	plain = os.Getenv("LD_LIBRARY_PATH")
	_ = flag.Set("test.parallel", "5") // most of their time tests wait: -parallel may say otherwise
	gputest.Main(m)
}

// A request names a method of peerSide; a reply has its result or an error.
type request struct {
	Do   string
	Args json.RawMessage
}

type reply struct {
	Error  string `json:",omitempty"`
	Result any    `json:",omitempty"`
}

// A peerSide is what a peer process has.
type peerSide struct {
	gpu      *device.Device // nil: regions are in host memory
	engine   *io.Engine
	regions  []region
	sessions []*io.Session
	statuses map[uint64]*io.Status

	descriptors map[string]string // of the process when it began
}

// A region in memory of a GPU has mem to be filled and looked at.
type region struct {
	mem  memory
	gpu  *device.Memory
	on   *device.Device
	desc io.MemoryDesc
}

func servePeer() {
	fds, err := descriptors()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	side := &peerSide{statuses: map[uint64]*io.Status{}, descriptors: fds}
	commands := map[string]func(json.RawMessage) (any, error){
		"start": side.start, "know": side.know, "region": side.region, "session": side.session, "post": side.post, "wait": side.wait, "cancel": side.cancel,
		"verify": side.verify, "seccomp": side.seccomp, "describe": side.describe, "arrived": side.arrived, "left": side.left, "close": side.close,
		"peek": side.peek, "throw": side.throw,
		"free": side.free, "remap": side.remap, "untouched": side.untouched, "stick": side.stick,
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		var r reply
		if err := json.Unmarshal(line, &q); err != nil {
			r.Error = err.Error()
		} else if do := commands[q.Do]; do == nil {
			r.Error = "no command " + q.Do
		} else if r.Result, err = do(q.Args); err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return
		}
	}
}

func decode[T any](raw json.RawMessage) (v T, err error) {
	err = json.Unmarshal(raw, &v)
	return v, err
}

// A startArgs makes an engine.
type startArgs struct {
	Key, Host  string
	TCP        bool // no shared memory
	DeadlineMS int
	GPU        int // regions are on this one, from 1; 0 is host memory
	UID        int // the process becomes this user first, unless 0
	MemoryMiB  int // the process can map so much more, unless 0

	gpus bool // the process sees GPUs

	env []string // of the process
}

func (p *peerSide) start(raw json.RawMessage) (any, error) {
	a, err := decode[startArgs](raw)
	if err != nil {
		return nil, err
	}
	if a.MemoryMiB != 0 {
		if err := limitMemory(uint64(a.MemoryMiB) << 20); err != nil {
			return nil, err
		}
	}
	if a.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(a.UID), syscall.Setuid(a.UID)); err != nil {
			return nil, err
		}
	}
	if a.GPU > 0 {
		all, err := device.Devices()
		if err != nil {
			return nil, err
		}
		p.gpu = all[(a.GPU-1)%len(all)]
	}
	if p.engine, err = io.NewEngine(a.Key, io.EngineConfig{Host: a.Host}); err != nil {
		return nil, err
	}
	cfg, kind := io.DefaultBackendConfig(), io.BackendRDMA
	if a.TCP {
		kind = io.BackendTCP
	}
	if a.DeadlineMS != 0 {
		cfg.DeadlineMS = a.DeadlineMS
	}
	if err := p.engine.CreateBackend(kind, cfg); err != nil {
		return nil, err
	}
	d := p.engine.Desc()
	return d.Pack(), nil
}

func (p *peerSide) know(raw json.RawMessage) (any, error) {
	packed, err := decode[[]byte](raw)
	if err != nil {
		return nil, err
	}
	d, err := io.UnpackEngineDesc(packed)
	if err != nil {
		return nil, err
	}
	return nil, p.engine.RegisterRemoteEngine(d)
}

// A regionArgs makes a region of blocks with the pattern of a seed; 0 leaves it zero.
type regionArgs struct {
	Blocks int
	Seed   uint64
}

func (p *peerSide) region(raw json.RawMessage) (any, error) {
	a, err := decode[regionArgs](raw)
	if err != nil {
		return nil, err
	}
	m, err := newMemory(a.Blocks * block)
	if err != nil {
		return nil, err
	}
	for i := 0; a.Seed != 0 && i < a.Blocks; i++ {
		fillBlock(m[i*block:(i+1)*block], a.Seed, uint64(i))
	}
	made := region{mem: m, on: p.gpu}
	if p.gpu != nil {
		if made.gpu, err = p.gpu.Alloc(uint64(len(m))); err != nil {
			return nil, err
		}
		if err = made.put(); err != nil {
			return nil, err
		}
		made.desc, err = p.engine.RegisterMemory(made.gpu.Addr(), made.gpu.Bytes(), p.gpu.Ordinal, io.LocGPU)
	} else {
		made.desc, err = p.engine.RegisterMemory(m.addr(), uint64(len(m)), -1, io.LocCPU)
	}
	if err != nil {
		return nil, err
	}
	p.regions = append(p.regions, made)
	return made.desc.Pack(), nil
}

// A sessionArgs names the local region by its index.
type sessionArgs struct {
	Local  int
	Remote []byte
}

func (p *peerSide) session(raw json.RawMessage) (any, error) {
	a, err := decode[sessionArgs](raw)
	if err != nil {
		return nil, err
	}
	remote, err := io.UnpackMemoryDesc(a.Remote)
	if err != nil {
		return nil, err
	}
	s, err := p.engine.CreateSession(p.regions[a.Local].desc, remote)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("no session")
	}
	p.sessions = append(p.sessions, s)
	return len(p.sessions) - 1, nil
}

// A postArgs moves blocks: Local[i] to or from Remote[i].
type postArgs struct {
	Session       int
	Read          bool
	UID           uint64
	Local, Remote []int

	beside *[]postArgs // under way at some time while this one was
}

func (p *peerSide) post(raw json.RawMessage) (any, error) {
	a, err := decode[postArgs](raw)
	if err != nil {
		return nil, err
	}
	lo, ro, sz := make([]uint64, len(a.Local)), make([]uint64, len(a.Local)), make([]uint64, len(a.Local))
	for i := range lo {
		lo[i], ro[i], sz[i] = uint64(a.Local[i])*block, uint64(a.Remote[i])*block, block
	}
	s := p.sessions[a.Session]
	move := s.Write
	if a.Read {
		move = s.Read
	}
	p.statuses[a.UID] = move(lo, ro, sz, a.UID)
	return nil, nil
}

// An outcome is how a transfer ended.
type outcome struct {
	Code int
	Text string
}

func (p *peerSide) wait(raw json.RawMessage) (any, error) {
	uid, err := decode[uint64](raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	st := p.statuses[uid]
	delete(p.statuses, uid)
	return outcome{int(st.Wait(ctx)), st.Message()}, nil
}

func (p *peerSide) cancel(raw json.RawMessage) (any, error) {
	uid, err := decode[uint64](raw)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	return nil, p.statuses[uid].Cancel(ctx)
}

// A verifyArgs says for each block of a region which blocks of a pattern its bytes may be from; -1
// is a zero block. With more than one a write was interrupted in it, or two were under way at once.
type verifyArgs struct {
	Region int
	Seed   uint64
	May    [][]int
}

// verify answers how many blocks hold something else, and the first of them.
func (p *peerSide) verify(raw json.RawMessage) (any, error) {
	a, err := decode[verifyArgs](raw)
	if err != nil {
		return nil, err
	}
	if err := p.regions[a.Region].get(); err != nil {
		return nil, err
	}
	mem, want, found := p.regions[a.Region].mem, make([]byte, block), make([]bool, block)
	var wrong []int
	for i, may := range a.May {
		clear(found)
		for _, k := range may {
			if clear(want); k >= 0 {
				fillBlock(want, a.Seed, uint64(k))
			}
			for j, b := range mem[i*block : (i+1)*block] {
				found[j] = found[j] || b == want[j]
			}
		}
		if slices.Contains(found, false) {
			wrong = append(wrong, i)
		}
	}
	return wrong, nil
}

func (p *peerSide) describe(json.RawMessage) (any, error) { return p.engine.Describe(), nil }

// An arrivedArgs asks for a transfer of a peer.
type arrivedArgs struct {
	Key string
	UID uint64
}

func (p *peerSide) arrived(raw json.RawMessage) (any, error) {
	a, err := decode[arrivedArgs](raw)
	if err != nil {
		return nil, err
	}
	return p.engine.PopInbound(a.Key, a.UID), nil
}

func (p *peerSide) seccomp(json.RawMessage) (any, error) { return nil, forbidCMA() }

func (p *peerSide) close(json.RawMessage) (any, error) {
	err := p.engine.Close()
	p.engine, p.sessions, p.statuses = nil, nil, nil
	return nil, err
}

// leftovers are what a process still has.
type leftovers struct {
	Goroutines, Descriptors int      // Descriptors: without those that the process began with
	Shared                  []string // mappings that other processes may have, too
	Heap                    uint64   // bytes that Go's collector cannot free
}

// descriptors returns what each open descriptor is. A process begins with more than three: Go's
// runtime keeps files of a control group open where that limits the processors.
func descriptors() (map[string]string, error) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil { // else it was that of ReadDir
			out[fd.Name()] = to
		}
	}
	return out, nil
}

func (p *peerSide) left(json.RawMessage) (any, error) {
	now := leftovers{Goroutines: runtime.NumGoroutine()}
	fds, err := descriptors()
	if err != nil {
		return nil, err
	}
	for fd, to := range fds {
		if p.descriptors[fd] != to {
			now.Descriptors++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(maps), "\n") {
		if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], "s") {
			now.Shared = append(now.Shared, line)
		}
	}
	var m runtime.MemStats
	for range 2 { // the second frees what finalizers of the first let go
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	now.Heap = m.HeapAlloc
	return now, nil
}
