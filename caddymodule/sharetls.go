// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// config reads the certificates. It takes nil for connections without TLS.
func (t *RedisTLS) config(texts *shareTexts) *tls.Config {
	if t == nil {
		return nil
	}
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         texts.replace("tls server_name", t.ServerName),
		InsecureSkipVerify: t.InsecureSkipVerify, // its doc comment says what that does
	}
	for _, name := range t.CA {
		path, text := texts.file("tls ca", name)
		if c.RootCAs == nil {
			c.RootCAs = x509.NewCertPool()
		}
		if texts.err == nil && !c.RootCAs.AppendCertsFromPEM(text) {
			texts.fail("tls ca", fmt.Errorf("%s has no certificate", path))
		}
	}
	if t.ClientCertificate == "" {
		return c
	}
	_, certificate := texts.file("tls client_certificate", t.ClientCertificate)
	_, key := texts.file("tls client_certificate", t.ClientKey)
	if texts.err != nil {
		return c
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		texts.fail("tls client_certificate", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c
}
