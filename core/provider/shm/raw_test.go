// SPDX-License-Identifier: MIT

package shm

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/native/gpu/gputest"
)

// Processes of the tests are this test binary again, with a role in the environment.
const roleVariable = "MORI_SHM_TEST_ROLE"

var roles = map[string]func(){"stranger": strangerProcess, "memory": lendMemory, "target": targetProcess, "initiator": initiatorProcess, "pingpong": answerPings,
	"sender": senderProcess, "receiver": receiverProcess}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		role()
		os.Exit(0)
	}
	gputest.Main(m, fabrictest.Main)
}

// lendMemory maps memory, prints its address, and holds it until its input ends.
func lendMemory() {
	m, err := sys.Alloc(256 << 20)
	if err != nil {
		panic(err)
	}
	for i := range m {
		m[i] = byte(i >> 12)
	}
	fmt.Println(sys.AddrOf(m), len(m))
	bufio.NewReader(os.Stdin).ReadByte()
}

// peerMemory starts a process with touched memory and returns its pid and the memory's address and
// size.
func peerMemory(tb testing.TB) (pid int, addr, n uint64) {
	tb.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=memory")
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { in.Close(); cmd.Wait() })
	if _, err := fmt.Fscan(out, &addr, &n); err != nil {
		tb.Fatal(err)
	}
	return cmd.Process.Pid, addr, n
}

// A rawCopier makes only the system call.
type rawCopier struct {
	tb   testing.TB
	pid  int
	move func(pid int, local, remote []sys.Iovec) (int, error)
	wg   sync.WaitGroup
}

func (c *rawCopier) copyJob(_ *job, s *slice) error {
	_, err := c.move(c.pid, s.local, s.remote)
	return err
}

func (c *rawCopier) finishJob(_ *job, err error) {
	if err != nil {
		c.tb.Error(err)
	}
	c.wg.Done()
}

func BenchmarkPool(b *testing.B) {
	pid, raddr, _ := peerMemory(b)
	mem, err := sys.Alloc(256 << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer sys.Free(mem)
	for i := range mem {
		mem[i] = 1
	}
	laddr := sys.AddrOf(mem)
	const total = 128 << 20
	for _, dir := range []string{"read", "write"} {
		move := vm.Read
		if dir == "write" {
			move = vm.Write
		}
		b.Run(dir+"/raw", func(b *testing.B) {
			b.SetBytes(total)
			l, r := make([]sys.Iovec, 1), make([]sys.Iovec, 1)
			for b.Loop() {
				for i := uint64(0); i < 128; i++ {
					l[0], r[0] = sys.Iovec{Addr: laddr + i<<20, Len: 1 << 20}, sys.Iovec{Addr: raddr + i<<20, Len: 1 << 20}
					if _, err := move(pid, l, r); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		for _, workers := range []int{1, 2, 3} {
			for _, sl := range []uint64{256 << 10, 512 << 10, 1 << 20, 4 << 20} {
				b.Run(fmt.Sprintf("%s/workers=%d/slice=%dK", dir, workers, sl>>10), func(b *testing.B) {
					p := newPool()
					p.limit, p.slice = workers, sl
					defer p.close()
					b.SetBytes(total)
					for b.Loop() {
						c := &rawCopier{tb: b, pid: pid, move: move}
						for i := uint64(0); i < 16; i++ {
							op := &fabric.Op{Seg: fabric.Seg{Addr: laddr + i<<23, Len: 8 << 20}, RSeg: fabric.RSeg{Addr: i << 23, Len: 8 << 20}}
							c.wg.Add(1)
							p.add(&job{path: c, walk: newWalk(op, op.Len(), raddr)})
						}
						c.wg.Wait()
					}
				})
			}
		}
	}
}
