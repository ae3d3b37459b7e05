// SPDX-License-Identifier: MIT

package reliability

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	mio "mori/io"
	"mori/native/gpu/gputest"
	"mori/tests/go/lab"
)

// soakTime is how long the soak runs: MORI_SOAK ("10m"), else a time that tests can spare.
func soakTime(t *testing.T) time.Duration {
	if text := os.Getenv("MORI_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("MORI_SOAK: %v", err)
		}
		return d
	}
	if testing.Short() {
		return 5 * time.Second
	}
	return 30 * time.Second
}

// gpuSoakTime is enough for GPUs unless MORI_SOAK says more.
const gpuSoakTime = 20 * time.Second

// TestSoak does random things to two hosts and to two processes of one host, side by side:
// transfers of all sizes, cancels, cuts, loss, delay, stops, kills and restarts. Of one host's
// processes, either may have its memory on a GPU.
func TestSoak(t *testing.T) {
	t.Run("two hosts", func(t *testing.T) {
		t.Parallel()
		l := lab.New(t)
		hosts := [2]*lab.Host{l.Host(), l.Host()}
		soak(t, &soaker{lab: l, hosts: hosts})
	})
	t.Run("one host", func(t *testing.T) {
		t.Parallel()
		soak(t, &soaker{})
	})
	for name, gpus := range map[string][2]int{"GPU to GPU": {1, 2}, "GPU to host": {1, 0}, "host to GPU": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			gputest.Need(t)
			t.Parallel()
			soak(t, &soaker{gpus: gpus})
		})
	}
}

// A soaker counts what it did.
type soaker struct {
	*pair
	lab   *lab.Lab
	hosts [2]*lab.Host
	gpus  [2]int // where the memory of each is, from 1; 0 is the host's
	did   map[string]int
	lost  map[string]int // transfers that failed, by what is allowed to make them
}

func soak(t *testing.T, s *soaker) {
	s.did, s.lost = map[string]int{}, map[string]int{}
	s.pair = connect(t, s.start(t, 0), s.start(t, 1), 1024)
	if s.gpus != [2]int{} { // now: behind a kill another path may be the better one for a while
		s.finish("nothing", s.write(1))
		s.byGPU()
	}
	last, length := time.Now(), soakTime(t)
	if s.gpus != [2]int{} && os.Getenv("MORI_SOAK") == "" {
		length = min(length, gpuSoakTime)
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		s.step()
		if time.Since(last) > 30*time.Second {
			last = time.Now()
			fmt.Printf("soak %s: %d MB checked, %v, failed %v\n", t.Name(), s.bytes>>20, s.did, s.lost)
		}
	}
	s.quiet()
	s.verify()
	t.Logf("%d bytes checked; did %v; failed %v", s.bytes, s.did, s.lost)
}

func (s *soaker) start(t *testing.T, i int) *peer {
	t.Helper()
	args := startArgs{Key: []string{"a", "b"}[i], DeadlineMS: 8000}
	if s.gpus != [2]int{} {
		args = args.onGPU(s.gpus[i])
	}
	return startPeer(t, s.hosts[i], args)
}

func (s *soaker) step() {
	switch k := s.rng.IntN(40); {
	case k < 14:
		s.finish("nothing", s.write(1+s.rng.IntN(s.blocks)))
	case k < 20:
		first, second := s.write(1+s.rng.IntN(64)), s.write(1+s.rng.IntN(s.blocks))
		s.finish("nothing", first)
		s.finish("nothing", second)
	case k < 26:
		s.did["read"]++
		if o := s.read(1 + s.rng.IntN(256)); o.Code != int(mio.CodeSuccess) {
			s.t.Fatalf("a read failed: %d %s", o.Code, o.Text)
		}
	case k < 30:
		w := s.write(1 + s.rng.IntN(s.blocks))
		s.did["cancel"]++
		s.a.ask("cancel", w.UID, nil)
		s.finish("cancel", w)
	case k < 34:
		s.stop(s.write(1 + s.rng.IntN(s.blocks)))
	case k < 36:
		s.verify()
	case k == 36:
		s.restart()
	case s.lab != nil:
		s.trouble(k)
	}
}

// finish books a write; only the named cause may have made it fail.
func (s *soaker) finish(cause string, w postArgs) {
	s.t.Helper()
	s.did["write"]++
	o := s.ended(w)
	if o.Code == int(mio.CodeSuccess) {
		return
	}
	if s.lost[cause]++; cause == "nothing" {
		s.t.Fatalf("a write failed: %d %s", o.Code, o.Text)
	}
}

// stop freezes one side for a while, far below the deadline: nothing may fail.
func (s *soaker) stop(w postArgs) {
	s.did["stop"]++
	s.b.signal(syscall.SIGSTOP)
	time.Sleep(time.Duration(s.rng.IntN(300)) * time.Millisecond)
	s.b.signal(syscall.SIGCONT)
	s.finish("nothing", w)
}

// restart kills the target in the middle of a write and continues with another one.
func (s *soaker) restart() {
	s.did["kill"]++
	w := s.write(s.blocks)
	time.Sleep(time.Duration(s.rng.IntN(2000)) * time.Microsecond)
	s.b.kill()
	s.finish("kill", w)
	s.b = s.start(s.t, 1)
	s.b.ask("know", s.a.desc, nil)
	s.a.ask("know", s.b.desc, nil)
	s.target()
}

// trouble is on the wire for a while, with a write under way.
func (s *soaker) trouble(k int) {
	w := s.write(s.blocks)
	switch k {
	case 37:
		s.did["cut"]++
		s.lab.Cut(true)
		time.Sleep(time.Duration(s.rng.IntN(800)) * time.Millisecond)
	case 38:
		s.did["loss"]++
		s.lab.Loss(0.02)
		s.finish("nothing", s.write(64))
	case 39:
		s.did["delay"]++
		s.lab.Delay(time.Duration(s.rng.IntN(50)) * time.Millisecond)
		s.finish("nothing", s.write(64))
	}
	s.quiet()
	s.finish("nothing", w)
}

func (s *soaker) quiet() {
	if s.lab != nil {
		s.lab.Cut(false)
		s.lab.Loss(0)
		s.lab.Delay(0)
	}
}
