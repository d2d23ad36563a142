package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files of a server's certificate.
const (
	authorityFile   = "authority.pem"
	certificateFile = "certificate.pem"
	keyFile         = "key.pem"
)

// certificates are an authority, a certificate it signed for the loopback
// interface, and the configuration of a client that trusts it.
type certificates struct {
	authority, certificate, key []byte // PEM
	client                      *tls.Config
}

func newCertificates() (*certificates, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "redistest authority"},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	// Servers are clients of each other when they replicate.
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "redistest"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	certificateDER, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	c := &certificates{
		authority:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificateDER}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(c.authority)
	c.client = &tls.Config{RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	return c, nil
}

// write writes the files into a server's directory.
func (c *certificates) write(dir string) error {
	var errs []error
	for name, content := range map[string][]byte{
		authorityFile: c.authority, certificateFile: c.certificate, keyFile: c.key,
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return errors.Join(errs...)
}

// TLSFiles returns the files of the authority, and of the certificate and the key that it
// signed for the loopback interface, of a server with TLS.
func (s *Server) TLSFiles() (authority, certificate, key string) {
	return s.path(authorityFile), s.path(certificateFile), s.path(keyFile)
}
