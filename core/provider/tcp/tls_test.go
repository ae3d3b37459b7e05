// SPDX-License-Identifier: MIT

package tcp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/tcp"
)

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	return a
}

// config returns a configuration that shows a certificate of a and trusts those of trust.
func (a *authority) config(tb testing.TB, trust *authority) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "engine"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(trust.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}
}

func TestFabricOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs without TLS, too")
	}
	a := newAuthority(t)
	cfg := a.config(t, a)
	fabrictest.Test(t, func(tb testing.TB) fabric.Provider {
		if strings.HasSuffix(tb.Name(), "/the_hot_path_does_not_allocate") {
			tb.Skip("crypto/tls allocates")
		}
		return tcp.New(tcp.Options{Links: 1, TLS: cfg})
	}, fabric.EPMsg, fabric.EPRDM)
}

func TestWhoIsNotTrustedIsRefused(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for name, c := range map[string]struct{ dialer *tls.Config }{
		"a certificate of another authority": {others.config(t, ours)},
		"one that does not believe us":       {ours.config(t, others)},
		"no TLS":                             {nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, l := openFabric(t, tcp.Options{TLS: ours.config(t, ours), Logger: quiet})
			dom, _ := openFabric(t, tcp.Options{TLS: c.dialer, Logger: quiet})
			ep := enabled(t, dom)
			_, err := ep.(fabric.Connector).Connect(ctx, l.Addr(), nil)
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("connect: %v", err)
			}
			short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
			defer stop()
			if req, err := l.Accept(short); err == nil {
				t.Fatalf("the listener got a request of %s", req.Peer())
			}
		})
	}
}

// A listener that closes in the middle of a handshake is not reported as one that rejects our
// certificate.
func TestAPeerThatLeavesInAHandshakeIsGone(t *testing.T) {
	a := newAuthority(t)
	for name, leave := range map[string]func(c net.Conn) error{
		"closed": func(c net.Conn) error {
			_, err := io.ReadFull(c, make([]byte, 5)) // the head of the first record
			return errors.Join(err, c.(*net.TCPConn).CloseWrite())
		},
		"reset": func(c net.Conn) error { return c.(*net.TCPConn).SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			left := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					err = errors.Join(leave(c), c.Close())
				}
				left <- err
			}()
			dom, _ := openFabric(t, tcp.Options{TLS: a.config(t, a)})
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if _, err := enabled(t, dom).(fabric.Connector).Connect(ctx, fabric.Addr(l.Addr().String()), nil); !errors.Is(err, fabric.ErrConnReset) {
				t.Errorf("connect: %v", err)
			}
			if err := <-left; err != nil {
				t.Error(err)
			}
		})
	}
}

func openFabric(t *testing.T, opts tcp.Options) (fabric.Domain, fabric.Listener) {
	t.Helper()
	ctx := context.Background()
	f, err := tcp.New(opts).Open(ctx, &fabric.Info{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Domain(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Listen(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), d.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, l
}

func enabled(t *testing.T, d fabric.Domain) fabric.Endpoint {
	t.Helper()
	ep, err := d.Endpoint(nil)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := d.CQ(16)
	if err == nil {
		err = errors.Join(ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false), ep.Enable())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ep.Close(), cq.Close()); err != nil {
			t.Error(err)
		}
	})
	return ep
}
