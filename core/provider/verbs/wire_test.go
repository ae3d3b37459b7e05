// SPDX-License-Identifier: MIT

package verbs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// wired waits until messages of ends go by queue pairs, all of them of who dialed.
func wired(tb testing.TB, ends ...*end) {
	tb.Helper()
	for _, e := range ends {
		dp := e.path(tb)
		if dp.setup.wg.Wait(); dp.rails.all[0].wire == nil {
			tb.Fatalf("messages use TCP: %s", e.reason())
		}
	}
}

func (m *memory) send(at, n uint64, data uint64) fabric.Op {
	return fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Data: data, Seg: m.seg(at, n)}
}

// talk sends count messages of up to most bytes from a to b, which takes each into memory of its
// own and finds it whole, and in order.
func talk(a, b *end, from, into *memory, count int, most uint64) error {
	length := func(i int) uint64 { return []uint64{0, 1, 64, 200, most / 9, most}[i%6] }
	sent := make(chan error, 1)
	go func() {
		sent <- func() error {
			for begun, ended := 0, 0; ended < count; ended++ {
				for ; begun < count && begun < ended+40; begun++ {
					if err := a.submit(from.send(uint64(begun%7), length(begun), uint64(begun))); err != nil {
						return err
					}
				}
				if _, err := a.next(); err != nil {
					return fmt.Errorf("message after %d: %w", ended, err)
				}
			}
			return nil
		}()
	}()
	for i := range count {
		clear(into.bytes)
		if err := b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: into.seg(0, into.Len)}); err != nil {
			return err
		}
		c, err := b.next()
		if err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
		if c.Data != uint64(i) || c.Len != length(i) {
			return fmt.Errorf("message %d of %d bytes, want %d of %d", c.Data, c.Len, i, length(i))
		}
		if err := same(into.bytes[:c.Len], from.bytes[i%7:][:c.Len]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return <-sent
}

// Messages, atomic ops and remote data of writes that move nothing are the queue pair's, with few
// receives and many.
func TestMessagesGoByQueuePairs(t *testing.T) {
	for name, limit := range map[string]string{"as many receives as usual": "", "few receives and sends": "max_qp_wr=5", "buffers of little memory": "max_mr_size=65536"} {
		for _, seed := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, delays of seed %d", name, seed), func(t *testing.T) {
				if limit != "" {
					verbstest.Limit(t, limit)
				}
				if seed > 0 {
					verbstest.Delay(t, seed)
				}
				a, b := newEnds(t, way{})
				wired(t, a, b)
				const most = 100_000
				from, into := a.memory(t, most+8), b.memory(t, most)
				from.fill(5)
				before := uint64(0)
				if !verbstest.Real() {
					before = verbstest.Bytes(t, 0)
				}
				const count = 60
				ok(t, talk(a, b, from, into, count, most))
				if !verbstest.Real() {
					if moved, least := verbstest.Bytes(t, 0)-before, uint64(count/6*most); moved < least {
						t.Errorf("the device moved %d bytes, the messages have more than %d", moved, least)
					}
				}
			})
		}
	}
}

// Both sides send as much as they can and read late: the credits run out, and no side waits without
// end.
func TestMessagesOfBothSidesAtOnce(t *testing.T) {
	for name, limit := range map[string]string{"usual": "max_qp_wr=1024", "few": "max_qp_wr=4"} {
		t.Run(name, func(t *testing.T) {
			verbstest.Limit(t, limit)
			a, b := newEndsOf(t, way{}, way{})
			wired(t, a, b)
			const n, size = 300, 3000
			done := make(chan error, 2)
			for _, e := range []*end{a, b} {
				mem, into := e.memory(t, size), e.memory(t, size)
				go func() {
					done <- func() error {
						for i := range uint64(n) {
							if err := e.submit(mem.send(0, size, i)); err != nil {
								return err
							}
						}
						for range n {
							if err := e.submit(fabric.Op{Kind: fabric.OpRecv, Seg: into.seg(0, size)}); err != nil {
								return err
							}
						}
						sent, came := 0, uint64(0)
						for sent < n || came < n {
							c, err := e.next()
							if err != nil {
								return fmt.Errorf("after %d sent and %d received: %w", sent, came, err)
							}
							if c.Kind == fabric.OpSend {
								sent++
							} else if came++; c.Data != came-1 {
								return fmt.Errorf("message %d, want %d", c.Data, came-1)
							}
						}
						return nil
					}()
				}()
			}
			ok(t, errors.Join(<-done, <-done))
		})
	}
}

// A device that has no room for the queue pair of messages, here or there: they go by TCP, and Path
// says so.
func TestMessagesWithoutAQueuePair(t *testing.T) {
	for _, side := range []string{"dials", "is dialed"} {
		t.Run(side, func(t *testing.T) {
			verbstest.NeedEmulated(t)
			leavesNothing(t)
			ends := map[bool]*end{}
			for _, poor := range []bool{false, true} {
				if poor {
					verbstest.Limit(t, "max_cqe=70", "max_qp_wr=30")
				}
				ends[poor] = newEnd(t, way{})
			}
			verbstest.Limit(t)
			a, b := ends[side == "dials"], ends[side != "dials"]
			ok(t, connect(a, b))
			for _, e := range []*end{a, b} {
				if e.path(t); !strings.Contains(e.reason(), "messages use TCP") {
					t.Errorf("path %q", e.reason())
				}
			}
			from, into := a.memory(t, 10_000), b.memory(t, 10_000)
			ok(t, talk(a, b, from, into, 20, 9000))
			ok(t, talk(b, a, into, from, 20, 9000))
		})
	}
}

// TLS encrypts what goes by TCP: messages do, then.
func TestMessagesUnderTLS(t *testing.T) {
	w := way{tls: selfSigned(t)}
	a, b := newEnds(t, w)
	for _, e := range []*end{a, b} {
		if e.path(t).rails.all[0].wire != nil || !strings.Contains(e.reason(), "messages use TCP") {
			t.Errorf("path %q", e.reason())
		}
	}
	from, into := a.memory(t, 10_000), b.memory(t, 10_000)
	ok(t, talk(a, b, from, into, 20, 9000))
}

// selfSigned is what both ends of a test show and believe.
func selfSigned(tb testing.TB) *tls.Config {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(tb, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	ok(tb, err)
	cert, err := x509.ParseCertificate(der)
	ok(tb, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
	}
}

// A queue pair that fails under messages ends them, and the connection.
func TestMessagesOfAQueuePairThatFails(t *testing.T) {
	a, b := newEnds(t, way{})
	wired(t, a, b)
	from := a.memory(t, 1000)
	into := b.memory(t, 1000)
	ok(t, talk(a, b, from, into, 5, 900))
	verbstest.FailNext(t, verbs.OpSendImm, verbs.StatusRetryExceeded)
	var last error
	for range 5 {
		if err := a.submit(from.send(0, 1000, 1)); err != nil {
			last = err
			break
		}
	}
	for last == nil {
		_, last = a.next()
	}
	fails(t, a.ends(t), fabric.ErrConnReset, "retries exceeded", "syndrome")
	_ = b.ends(t)
}

// What a peer does to the queue pair of messages ends its own connection, and nobody else's.
func TestHostileMessages(t *testing.T) {
	v := newVictim(t, way{})
	garbage := pattern(500, 7)
	sge := verbs.SGE{Addr: sys.AddrOf(garbage), Len: 60}
	for name, c := range map[string]struct {
		op    uint8
		imm   uint32
		bytes uint32
		cause fabric.Errno
	}{
		"garbage":             {verbs.OpSendImm, 0, 60, fabric.ErrProtocol}, // the stream wants a whole header: the second send has the rest
		"no immediate data":   {verbs.OpSend, 0, 60, fabric.ErrProtocol},
		"credits from naught": {verbs.OpSendImm, 1 << 20, 60, fabric.ErrProtocol},
		"a credit too many":   {verbs.OpSendImm, wireRecvs + 1, 0, fabric.ErrProtocol},
		"a write":             {verbs.OpWrite, 0, 60, fabric.ErrConnReset},
	} {
		t.Run(name, func(t *testing.T) {
			bad := newEnd(t, way{})
			ok(t, v.renew())
			ok(t, connect(bad, v.end))
			wired(t, bad, v.end)
			dp := bad.path(t)
			s := sge
			s.Len = c.bytes
			wr := verbs.SendWR{Op: c.op, Imm: c.imm, Flags: verbs.Inline | verbs.Signaled, Count: 1, RemoteAddr: sys.AddrOf(garbage)}
			dp.rails.all[0].wire.pair.abuse(t, dp, wr, s, 2)
			v.suffers(t, c.cause)
		})
	}
}

// Messages and atomic ops allocate nothing once the endpoint has seen such.
func TestMessagesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newEnds(t, way{})
	wired(t, a, b)
	const size = 4 << 10
	from, into := a.memory(t, size), b.memory(t, size)
	key := a.imports(t, into.mr)
	done, heard := make([]fabric.Completion, 8), make([]fabric.Completion, 8)
	old := a.memory(t, 8)
	for name, op := range map[string]fabric.Op{
		"short message": from.send(0, 32, 1), "message": from.send(0, size, 1),
		"atomic": {Kind: fabric.OpAtomic, Seg: from.seg(0, 8), RSeg: fabric.RSeg{Len: 8, Key: key}, Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64}},
		"fetching atomic": {Kind: fabric.OpFetchAtomic, Seg: from.seg(0, 8), RSeg: fabric.RSeg{Len: 8, Key: key},
			Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64, Result: old.seg(0, 8)}},
	} {
		ops := []fabric.Op{op}
		recv := []fabric.Op{{Kind: fabric.OpRecv, Seg: into.seg(0, size)}}
		once := func() {
			if op.Kind == fabric.OpSend {
				if n, err := b.ep.Submit(recv); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			a.round(t, ops, done)
			if op.Kind == fabric.OpSend {
				if _, err := b.cq.Wait(b.ctx, heard); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 300 {
			once()
		}
		if n := testing.AllocsPerRun(100, once); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
