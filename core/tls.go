// SPDX-License-Identifier: MIT

package core

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"mori/core/config"
	"mori/core/fabric"
)

// TLS is what the files cert, key and ca ask for: nil if all are empty, an error if only some are.
// Both sides of a connection show a certificate that an authority in ca has signed. Names in
// certificates are not compared with addresses: engines find each other by descriptors, and any
// address may be behind them; who has a certificate is a member.
func TLS(cert, key, ca string) (*tls.Config, error) {
	switch {
	case cert == "" && key == "" && ca == "":
		return nil, nil
	case cert == "" || key == "" || ca == "":
		return nil, fmt.Errorf("TLS needs all of %s (%q), %s (%q) and %s (%q): %w", config.TLSCert, cert, config.TLSKey, key, config.TLSCA, ca, fabric.ErrInvalid)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load the TLS certificate of %s and %s: %w", cert, key, errors.Join(err, fabric.ErrInvalid))
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", config.TLSCA, errors.Join(err, fabric.ErrInvalid))
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s %s contains no certificate: %w", config.TLSCA, ca, fabric.ErrInvalid)
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{pair},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // of names and of the system's authorities: isMember verifies against ours
		VerifyConnection:   func(s tls.ConnectionState) error { return isMember(s.PeerCertificates, trusted) },
		MinVersion:         tls.VersionTLS13,
	}, nil
}

// isMember is nil if the first certificate of a chain was signed by a trusted authority.
func isMember(chain []*x509.Certificate, trusted *x509.CertPool) error {
	if len(chain) == 0 {
		return fmt.Errorf("the peer presented no certificate: %w", fabric.ErrAccess)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("the peer's certificate of %q: %v: %w", chain[0].Subject.CommonName, err, fabric.ErrAccess)
	}
	return nil
}
