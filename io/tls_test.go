// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePEM puts a block into a file and returns its name.
func writePEM(t *testing.T, dir, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificates creates an authority and a certificate that it signed, and returns their files.
func certificates(t *testing.T) (cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	sign := func(serial int64, tmpl, parent *x509.Certificate, with *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if with == nil {
			with = own
		}
		tmpl.SerialNumber, tmpl.NotAfter = big.NewInt(serial), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &own.PublicKey, with)
		if err != nil {
			t.Fatal(err)
		}
		return der, own
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootDER, rootKey := sign(1, root, root, nil)
	der, own := sign(2, &x509.Certificate{Subject: pkix.Name{CommonName: "some engine"}}, root, rootKey)
	raw, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, dir, "cert.pem", "CERTIFICATE", der), writePEM(t, dir, "key.pem", "EC PRIVATE KEY", raw), writePEM(t, dir, "ca.pem", "CERTIFICATE", rootDER)
}

// sealed returns an engine with TLS, and its journal.
func sealed(t *testing.T, key, cert, certKey, ca string) (*side, *journal) {
	t.Helper()
	t.Setenv("MORI_TLS_CERT", cert)
	t.Setenv("MORI_TLS_KEY", certKey)
	t.Setenv("MORI_TLS_CA", ca)
	e, err := NewEngine(key, EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	e.self.Log = slog.New(slog.NewTextHandler(j, nil))
	return newSideOf(t, e, 1<<20, BackendTCP, nil), j
}

func TestTransfersUnderTLS(t *testing.T) {
	cert, key, ca := certificates(t)
	a, _ := sealed(t, "a", cert, key, ca)
	b, _ := sealed(t, "b", cert, key, ca)
	s := meet(t, a, b)
	fill(a.mem, 1)
	for uid := range uint64(20) {
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 20}, uid))
		succeed(t, s.Read([]uint64{0}, []uint64{0}, []uint64{1 << 20}, uid))
	}
	if !bytes.Equal(a.mem, b.mem) {
		t.Error("bytes differ")
	}
	arrived(t, b.Engine, "a", 19)
}

func TestStrangersUnderTLSAreRefusedOnBothSides(t *testing.T) {
	cert, key, ca := certificates(t)
	otherCert, otherKey, otherCA := certificates(t)
	for name, c := range map[string]struct {
		cert, key, ca string
		there         string // a word in the log of the engine that is called
		explained     bool   // the caller's error names the reason
	}{
		"another authority": {otherCert, otherKey, otherCA, "tls", true},
		"another cert":      {otherCert, otherKey, ca, "certificate", false},
		"no TLS":            {"", "", "", "tls", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, ja := sealed(t, "a", c.cert, c.key, c.ca)
			b, jb := sealed(t, "b", cert, key, ca)
			if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
				t.Fatal(err)
			}
			s, err := a.CreateSession(a.desc, b.desc)
			if s != nil || err == nil || !strings.Contains(err.Error(), `"b"`) {
				t.Fatalf("session %v, %v", s, err)
			}
			jb.has(t, "control plane", c.there)
			if c.explained {
				ja.has(t, "peer refused", "certificate")
			}
		})
	}
}

func TestHalfATLSConfigurationIsRefused(t *testing.T) {
	cert, key, ca := certificates(t)
	for name, files := range map[string][3]string{"no key": {cert, "", ca}, "no authority": {cert, key, ""}, "no such file": {cert, key + "x", ca},
		"a key in place of the authority": {cert, key, key}, "the wrong key": {cert, ca, ca}} {
		t.Setenv("MORI_TLS_CERT", files[0])
		t.Setenv("MORI_TLS_KEY", files[1])
		t.Setenv("MORI_TLS_CA", files[2])
		if _, err := NewEngine("a", EngineConfig{}); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
