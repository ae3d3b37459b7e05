// SPDX-License-Identifier: MIT

package tcp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/fabric/fabrictest/pingpong"
	"mori/core/internal/sys"
	"mori/core/provider/tcp"
	"mori/native/gpu/gputest"
)

// The peer of benchmarks and of tests that kill it: this binary again, as a process that offers one
// region over the provider, and also plain sockets.

const (
	peerEnv  = "MORI_TCP_TEST_PEER"
	onDevice = "device" // value of the variable if the region is memory of the last device
)

func TestMain(m *testing.M) {
	if n := os.Getenv(peerEnv); n != "" {
		gputest.Start()
		if err := servePeer(n == onDevice); err != nil {
			println("peer:", err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(pingpongEnv) != "" {
		if err := pingpong.Serve(tcp.New(tcp.Options{}), os.Stdin, os.Stdout, os.Args[1:]); err != nil {
			println("ping-pong:", err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	gputest.Main(m, fabrictest.Main)
}

// A peerHello is what the peer prints first.
type peerHello struct {
	Addr fabric.Addr // of the provider's listener
	Raw  []byte      // key of its region
	Sock string      // plain sockets: see servePlain
}

const peerRegion = 256 << 20

// servePeer runs until standard input ends.
func servePeer(device bool) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	ctx := context.Background()
	p := tcp.New(tcp.Options{})
	f, err := p.Open(ctx, nil)
	if err != nil {
		return err
	}
	var in *fabric.Info
	if device {
		in = deviceInfo()
	}
	d, err := f.Domain(ctx, in)
	if err != nil {
		return err
	}
	ln, err := f.Listen(ctx, nil)
	if err != nil {
		return err
	}
	mem, err := sys.Alloc(peerRegion)
	if err != nil {
		return err
	}
	clearPages(mem)
	buf := fabric.Buffer{Addr: sys.AddrOf(mem), Len: peerRegion}
	if device {
		if buf, _, err = deviceMemory(1, peerRegion); err != nil {
			return err
		}
	}
	mr, err := d.Reg(buf, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, fabric.RegionKey{ID: 1})
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go servePlain(plain, mem)
	if err := json.NewEncoder(os.Stdout).Encode(peerHello{ln.Addr(), mr.Raw(), plain.Addr().String()}); err != nil {
		return err
	}
	for {
		req, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		cq, err := d.CQ(4096)
		if err != nil {
			return err
		}
		ep, err := d.Endpoint(nil)
		if err != nil {
			return err
		}
		if err := ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false); err != nil {
			return err
		}
		if err := ep.Enable(); err != nil {
			return err
		}
		if err := ep.(fabric.Connector).Accept(ctx, req, nil); err != nil {
			return err
		}
	}
}

func clearPages(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 0
	}
}

// servePlain reads a length from each connection. If it is 0, servePlain echoes 8 bytes at a time.
// Otherwise it reads that many bytes into memory, answers with one byte, and starts again.
func servePlain(ln net.Listener, mem []byte) {
	for n := 0; ; n++ {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			fd := plainFD(c)
			var h [8]byte
			if !plainRead(fd, h[:]) {
				return
			}
			size := binary.BigEndian.Uint64(h[:])
			if size == 0 {
				for plainRead(fd, h[:]) && plainWrite(fd, h[:]) {
				}
				return
			}
			part := mem[(n%4)*(peerRegion/4):][:size]
			for plainRead(fd, part) && plainWrite(fd, h[:1]) {
			}
		}()
	}
}

// A peer is the running peer process.
type peer struct {
	hello peerHello
	cmd   *exec.Cmd
}

func startPeer(tb testing.TB) *peer { return startPeerOn(tb, "host") }

func startPeerOn(tb testing.TB, where string) *peer {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerEnv+"="+where)
	cmd.Stderr = os.Stderr
	in := must[io.WriteCloser](tb)(cmd.StdinPipe())
	out := must[io.ReadCloser](tb)(cmd.StdoutPipe())
	check(tb, cmd.Start())
	p := &peer{cmd: cmd}
	tb.Cleanup(func() {
		_ = in.Close()
		t := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed peers end with an error
		t.Stop()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	check(tb, err)
	check(tb, json.Unmarshal(line, &p.hello))
	return p
}

// join connects a new side to the peer and imports its region.
func (p *peer) join(tb testing.TB, opts tcp.Options) (s *side, key uint64) {
	tb.Helper()
	s = newSide(tb, tcp.New(opts))
	_, err := s.ep.(fabric.Connector).Connect(testContext(tb), p.hello.Addr, nil)
	check(tb, err)
	must[fabric.Event](tb)(s.eq.Wait(testContext(tb)))
	return s, imported(tb, s, p.hello.Raw)
}
