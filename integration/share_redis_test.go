// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/internal/redisserver/redistest"
)

// placesAsOne checks with a burst that the Caddys know of each other's load.
func (c *crew) placesAsOne(upstreams []*upstream, mark string) {
	c.t.Helper()
	got := burst(c.t, c.sites, upstreams, repeated(64, func(i int) string { return chat(words(fmt.Sprint(mark, i), 32_000)) }))
	if got[2] > 26 {
		c.t.Errorf("a burst of 64 went %v, want at most 26 on each upstream", got)
	}
}

// A password is taken from a file or from the environment, and nobody reads it in
// the config.
func TestSharePassword(t *testing.T) {
	const password = "very {secret} words"
	redis := startRedis(t, "", "--requirepass", password)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOADAWARE_TEST_PASSWORD", password)
	upstreams := newUpstreams(t, 3, answerAtOnce)
	c := &crew{t: t}
	for _, placeholder := range []string{"{env.LOADAWARE_TEST_PASSWORD}", "{file." + file + "}"} {
		s := newServer(t)
		s.log = "file " + filepath.Join(t.TempDir(), "log")
		c.add(s, fmt.Sprintf(sharedSite, addresses(upstreams), redis.Addr, "db 2\npassword "+placeholder))
		_, config := s.get("/config/")
		_, fleets := s.get("/llm_loadaware/fleets")
		if !strings.Contains(config, placeholder) || strings.Contains(config+fleets, "secret") {
			t.Errorf("the config has not the placeholder alone: %s", config)
		}
	}
	c.meet()
	for _, s := range c.servers {
		if strings.Contains(readFile(t, strings.TrimPrefix(s.log, "file ")), "secret") {
			t.Error("the password was logged")
		}
	}
	c.placesAsOne(upstreams, "password")
}

// redisCertificate makes a certificate for loopback that is its own authority, with its
// key, and returns the files.
func redisCertificate(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loopback"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"redis.internal"},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate, key = filepath.Join(folder, "certificate.pem"), filepath.Join(folder, "key.pem")
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// Connections are encrypted, with a certificate of the client where Redis asks for
// one, and a server that is not the right one is not talked to.
func TestShareTLS(t *testing.T) {
	cert, key := redisCertificate(t)
	redis := startRedis(t, "", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	upstreams := newUpstreams(t, 3, answerAtOnce)
	client := "client_certificate " + cert + " " + key
	c := &crew{t: t}
	for _, options := range [][]string{
		{client, "ca " + cert},
		{client, "ca " + cert, "server_name redis.internal"},
		{client, "insecure_skip_verify"},
	} {
		c.add(newServer(t), fmt.Sprintf(sharedSite, addresses(upstreams), redis.Addr, "tls {\n"+strings.Join(options, "\n")+"\n}"))
	}
	c.meet()
	c.placesAsOne(upstreams, "tls")

	for name, options := range map[string]string{
		"no client certificate": "tls {\nca " + cert + "\n}",
		"an unknown authority":  "tls {\n" + client + "\n}",
		"another name":          "tls {\n" + client + "\nca " + cert + "\nserver_name other\n}",
		"no tls":                "",
	} {
		s := newServer(t)
		s.spawn(t, fmt.Sprintf(sharedSite, addresses(upstreams), redis.Addr, options))
		eventually(t, func() bool { return s.fleet().Share.Errors > 1 }, func() string { return name + ": there is no error" })
		if share := s.fleet().Share; share.Connected || share.Heard > 0 {
			t.Errorf("%s: shares %+v, want nothing", name, share)
		}
	}
}

// A Cluster has a fleet on one of its nodes.
func TestShareCluster(t *testing.T) {
	redis := startRedis(t, "", "--cluster-enabled", "yes")
	if _, err := redis.Do("CLUSTER ADDSLOTSRANGE 0 16383"); err != nil {
		t.Fatal(err)
	}
	upstreams := newUpstreams(t, 3, answerAtOnce)
	c := newCrew(t, 2, addresses(upstreams), redis.Addr, "cluster")
	c.placesAsOne(upstreams, "cluster")
}

// When the master goes, the Caddys find the one that the Sentinels choose.
func TestShareFailover(t *testing.T) {
	master := startRedis(t, "")
	_, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	startRedis(t, "", "--replicaof", "127.0.0.1 "+port)
	sentinel := redistest.StartSentinel(t, fmt.Sprintf(
		"sentinel monitor main 127.0.0.1 %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n", port))
	upstreams := newUpstreams(t, 3, answerAtOnce)
	c := newCrew(t, 2, addresses(upstreams), sentinel.Addr, "master main")
	c.placesAsOne(upstreams, "before")
	for _, u := range upstreams {
		u.setAnswer(answerAtOnce)
	}
	if err := master.Stop(); err != nil {
		t.Fatal(err)
	}
	c.part()
	c.meet()
	c.placesAsOne(upstreams, "after")
}
