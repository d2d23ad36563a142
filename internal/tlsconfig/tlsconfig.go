// Package tlsconfig makes the TLS configurations of clients that are opened by URL.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/mailboxmq/mailbox/driver"
)

// Trusting returns a configuration that trusts the authorities in file, in PEM form, or
// those of the system if file is empty. Codes: ErrInvalid, with the Field ca.
func Trusting(file string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return config, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "ca", Detail: "cannot be read; want a file with certificates in PEM form", Err: err}
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "ca", Detail: "has no certificate; want a file with certificates in PEM form"}
	}
	return config, nil
}
