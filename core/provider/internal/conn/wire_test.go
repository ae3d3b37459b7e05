// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// A pipe is a wire with little room to the other pipe of its pair.
type pipe struct {
	ep    Port
	other *pipe
	most  int

	mu    sync.Mutex
	bytes []byte // arrived and not yet received
	full  bool   // the sender waits for room
	mute  bool   // sends do not notify the other side
}

func (p *pipe) Send(iov []sys.Iovec) (n int, err error) {
	o := p.other
	o.mu.Lock()
	for _, v := range iov {
		k := max(0, min(int(v.Len), o.most-len(o.bytes)))
		o.bytes = append(o.bytes, sys.Bytes(v.Addr, k)...)
		if n += k; k < int(v.Len) {
			break
		}
	}
	if n == 0 {
		o.full = true
		err = syscall.EAGAIN
	}
	mute := p.mute
	o.mu.Unlock()
	if n > 0 && !mute {
		go o.ep.WireCame()
	}
	return n, err
}

// room calls WireRoom. A data path does not call it after it is closed.
func (p *pipe) room() {
	if p.ep.ep.shutdown.Enter() {
		defer p.ep.ep.shutdown.Leave()
		p.ep.WireRoom()
	}
}

func (p *pipe) Recv(iov []sys.Iovec) (n int, err error) {
	p.mu.Lock()
	for _, v := range iov {
		k := copy(sys.Bytes(v.Addr, int(v.Len)), p.bytes)
		p.bytes = p.bytes[k:]
		n += k
	}
	room := p.full && n > 0
	if room {
		p.full = false
	}
	p.mu.Unlock()
	if room {
		go p.other.room()
	}
	if n == 0 {
		return 0, syscall.EAGAIN
	}
	return n, nil
}

// wired returns two connected rigs that have no wire yet, and their pipes.
func wired(t *testing.T, room int) (a, b *rig, pa, pb *pipe) {
	t.Helper()
	a, b, _, _ = directPair(t, hold)
	pa, pb = &pipe{ep: Port{a.ep}, most: room}, &pipe{ep: Port{b.ep}, most: room}
	pa.other, pb.other = pb, pa
	return a, b, pa, pb
}

// message returns the i-th message of a test.
func message(i int) []byte {
	n := []int{8, 300, 5000, 70_000, frame.MaxEager + 7000}[i%5]
	return bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, n/3)
}

// exchange sends n messages from a to b and checks that they arrive whole and in order. It calls
// between in the middle.
func exchange(t *testing.T, a, b *rig, n int, between func(i int)) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			between(i)
			m := message(i)
			if _, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Data: uint64(i), Seg: fabric.Seg{Addr: sys.AddrOf(m), Len: uint64(len(m))}}}); err != nil {
				sent <- err
				return
			}
			_, err := a.next()
			runtime.KeepAlive(m)
			if err != nil {
				sent <- fmt.Errorf("message %d: %w", i, err)
				return
			}
		}
		sent <- nil
	}()
	got := make([]byte, frame.MaxEager+7000)
	for i := range n {
		_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: sys.AddrOf(got), Len: uint64(len(got))}}})
		b.must(err)
		c, err := b.next()
		b.must(err)
		if c.Data != uint64(i) || !bytes.Equal(got[:c.Len], message(i)) {
			t.Fatalf("message %d of %d bytes, want %d", c.Data, c.Len, i)
		}
	}
	a.must(<-sent)
}

func TestMessagesTurnToTheWireInOrder(t *testing.T) {
	for _, room := range []int{60, 5000, 1 << 20} {
		for _, at := range []int{0, 1, 7} {
			t.Run(fmt.Sprintf("room %d, at %d", room, at), func(t *testing.T) {
				a, b, pa, pb := wired(t, room)
				n := 30
				if room < 100 {
					n = 9
				}
				var over sync.WaitGroup
				over.Add(1)
				exchange(t, a, b, n, func(i int) {
					if i == at {
						go func() {
							defer over.Done()
							Port{b.ep}.AddWire(pb)
							Port{a.ep}.AddWire(pa)
						}()
					}
				})
				over.Wait()
				exchange(t, b, a, 10, func(int) {})
				if !a.ep.out.sends.turned || !b.ep.out.sends.turned {
					t.Error("messages still go by the socket")
				}
				a.must(a.ep.Shutdown())
				if e := b.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrShutdown) {
					t.Errorf("ended by %v", e.Err)
				}
			})
		}
	}
}

// Messages sent before the turn are received first, whenever those of the wire arrive.
func TestAMessageOnTheWireWaitsForTheSocket(t *testing.T) {
	a, b, pa, pb := wired(t, 1<<20)
	Port{b.ep}.AddWire(pb)
	direct := b.ep.path.(*testPath)
	direct.mu.Lock() // blocks the reader of the socket at the next frame
	a.must(Port{a.ep}.SendFrame(1, nil))
	_, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Data: 1}})
	a.must(err)
	Port{a.ep}.AddWire(pa)
	_, err = a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Data: 2}})
	a.must(err)
	_, err = b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}, {Kind: fabric.OpRecv}})
	b.must(err)
	for end := time.Now().Add(testDeadline); ; time.Sleep(time.Millisecond) {
		pb.mu.Lock()
		left := len(pb.bytes)
		pb.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody looks at the wire")
		}
	}
	direct.mu.Unlock()
	for want := uint64(1); want <= 2; want++ {
		c, err := b.next()
		b.must(err)
		if c.Data != want {
			t.Errorf("message %d, want %d", c.Data, want)
		}
	}
}

// A wire that carries no more bytes loses the goodbye. The side that waits for the goodbye ends in
// bounded time.
func TestGoodbyesThatAWireLoses(t *testing.T) {
	a, b, pa, pb := wired(t, 1<<20)
	Port{b.ep}.AddWire(pb)
	Port{a.ep}.AddWire(pa)
	exchange(t, a, b, 3, func(int) {})
	pb.mu.Lock()
	pa.mute = true
	pb.most = 0
	pb.mu.Unlock()
	a.must(a.ep.Shutdown())
	if e := b.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrShutdown) {
		t.Errorf("ended by %v", e.Err)
	}
}

// Frames that are invalid on a socket or on the wire end the connection and have no other effect.
func TestFramesThatAWireDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct {
		socket, wire []byte
		wired        bool
	}{
		"a turn on the wire":           {wired: true, wire: encode(frame.Header{Kind: frame.KindTurn}, nil, nil)},
		"two turns":                    {wired: true, socket: append(encode(frame.Header{Kind: frame.KindTurn}, nil, nil), encode(frame.Header{Kind: frame.KindTurn}, nil, nil)...)},
		"a message behind the turn":    {wired: true, socket: append(encode(frame.Header{Kind: frame.KindTurn}, nil, nil), encode(frame.Header{Kind: frame.KindSend, Length: 1}, nil, []byte{1})...)},
		"an extension on the wire":     {wired: true, wire: encode(frame.Header{Kind: frame.KindExtension, Count: 3, Length: 1}, nil, []byte{1})},
		"a pull of nothing":            {wired: true, wire: encode(frame.Header{Kind: frame.KindPull, Ticket: 5}, nil, nil)},
		"a body of nothing":            {wired: true, wire: encode(frame.Header{Kind: frame.KindBody, Ticket: 5}, nil, nil)},
		"an ack of nothing":            {wired: true, wire: encode(frame.Header{Kind: frame.KindAck, Count: 1}, nil, make([]byte, frame.AckLen))},
		"garbage on the wire":          {wired: true, wire: bytes.Repeat([]byte{0xa5}, frame.HeaderLen)},
		"half a frame and the goodbye": {wired: true, wire: encode(frame.Header{Kind: frame.KindSend, Length: 9}, nil, []byte{1}), socket: encode(frame.Header{Kind: frame.KindGoodbye, Data: 1}, nil, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(ep Port, _ any) (DataPath, error) {
				return &testPath{ep: ep, rma: hold, open: map[Ticket]bool{}, changed: make(chan struct{}, 1000)}, nil
			})
			conn := r.dial(1)[0]
			p := &pipe{ep: Port{r.ep}, bytes: c.wire}
			p.other = &pipe{ep: Port{r.ep}} // receives nothing
			if c.wired {
				Port{r.ep}.AddWire(p)
			}
			_, err := conn.Write(c.socket)
			r.must(err)
			if name == "half a frame and the goodbye" {
				r.must(conn.Close())
			}
			e := r.event(fabric.EventShutdown)
			want := fabric.ErrProtocol
			if name == "half a frame and the goodbye" {
				want = fabric.ErrShutdown
			}
			if !errors.Is(e.Err, want) {
				t.Errorf("ended by %v, want %v", e.Err, want)
			}
		})
	}
}
