// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/arena"
)

// The environment chooses among the transports, as it does for mori.io.
func TestTransportsAreFiltered(t *testing.T) {
	environment(t, map[string]string{"FABRIC_PROVIDER": "tcp"})
	run(t, 2, Config{DisableP2P: true}, func(w *World) error {
		if p := w.Describe().Peers[1-w.pes.Me]; p.Path != "tcp" {
			t.Errorf("%+v", p)
		}
		return nil
	})
}

// unopened makes a World of two PEs on two nodes that cannot be, and hands the error of each to f.
func unopened(t *testing.T, cfg func(pe int) Config, f func(pe int, err error)) {
	t.Helper()
	type answer struct {
		pe  int
		err error
	}
	answers := make(chan answer, 2)
	for i, g := range bootstrap.Local(2) {
		go func() {
			w, err := Init(context.Background(), g, cfg(i))
			if err == nil {
				_ = w.Finalize(context.Background())
			}
			answers <- answer{i, err}
		}()
	}
	for range 2 {
		a := <-answers
		f(a.pe, a.err)
	}
}

func TestNoTransportIsLeft(t *testing.T) {
	environment(t, map[string]string{"FABRIC_PROVIDER": "^tcp,verbs"})
	unopened(t, func(pe int) Config {
		return Config{HeapSize: 1 << 20, NodeID: string(rune('a' + pe)), Timeout: 10 * time.Second}
	}, func(pe int, err error) {
		if !errors.Is(err, fabric.ErrNoData) || !strings.Contains(err.Error(), "another host") {
			t.Errorf("PE %d: %v", pe, err)
		}
	})
}

// A PE that cannot listen is an error of all, and the others' names its cause.
func TestHostThatIsNotOurs(t *testing.T) {
	unopened(t, func(pe int) Config {
		return Config{HeapSize: 1 << 20, NodeID: string(rune('a' + pe)), Host: []string{"127.0.0.1", "192.0.2.1"}[pe], Timeout: 10 * time.Second}
	}, func(pe int, err error) {
		if err == nil || pe == 0 && (!errors.Is(err, ErrElsewhere) || !strings.Contains(err.Error(), "PE 1") || !strings.Contains(err.Error(), "192.0.2.1")) {
			t.Errorf("PE %d: %v", pe, err)
		}
	})
}

func TestHalfOfTLSIsRefused(t *testing.T) {
	environment(t, map[string]string{"MORI_TLS_CERT": "/nowhere"})
	unopened(t, func(pe int) Config {
		return Config{HeapSize: 1 << 20, NodeID: string(rune('a' + pe)), Timeout: 10 * time.Second}
	}, func(pe int, err error) {
		if !errors.Is(err, fabric.ErrInvalid) || !strings.Contains(err.Error(), "MORI_TLS_KEY") {
			t.Errorf("PE %d: %v", pe, err)
		}
	})
}

func TestNetworkUnderTLS(t *testing.T) {
	cert, key := certificate(t)
	environment(t, map[string]string{"MORI_TLS_CERT": cert, "MORI_TLS_KEY": key, "MORI_TLS_CA": cert, "MORI_IO_CHECKSUM": "1", "FABRIC_PROVIDER": "tcp"})
	run(t, 2, Config{NodeID: "node %d"}, func(w *World) error {
		return traffic(w, life{})
	})
}

// certificate makes files with an authority that signs itself.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "EC PRIVATE KEY", Bytes: packed}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// What the network does for an op allocates nothing, here and in the transport.
func TestNetworkAllocatesNothing(t *testing.T) {
	for name, cfg := range map[string]Config{"shm": {DisableP2P: true}, "tcp": {NodeID: "node %d"}, "NICs": {NodeID: "node %d"}} {
		t.Run(name, func(t *testing.T) {
			if name == "NICs" {
				byNICs(t)
			}
			run(t, 2, cfg, func(w *World) error {
				if w.pes.Me == 1 {
					return nil // and waits in Finalize
				}
				src, err := make([]byte, 4096), error(nil)
				defer runtime.KeepAlive(src)
				at := memory.AddrOf(src)
				all := func() {
					_, failed := w.net.Atomic(1, w.heap.Main().Regions(), arena.Reserved, fabric.AtomicSum, 8, 1, 0)
					err = errors.Join(err, failed, w.net.PutNow(1, w.heap.Main().Regions(), arena.Reserved, at, 4096), w.net.GetNow(1, w.heap.Main().Regions(), arena.Reserved, at, 4096),
						w.net.Update(1, w.heap.Main().Regions(), arena.Reserved, fabric.AtomicSum, 8, 1), w.net.Quiet(w.pes.Deadline()))
				}
				for range 300 { // every flight, once
					all()
				}
				if n := testing.AllocsPerRun(300, all); n >= 1 && !raceBuild {
					t.Errorf("%v allocations", n)
				}
				return err
			})
		})
	}
}
