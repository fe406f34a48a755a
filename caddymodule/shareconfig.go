// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"cmp"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/share/redis"
)

// What is not set of RedisShare.
const (
	defaultSharePrefix  = "llm_loadaware:"
	defaultShareTimeout = caddy.Duration(20 * time.Millisecond)
	redisPort           = "6379"
	sentinelPort        = "26379"
)

// Share lets several Caddys place as one does. All of them name the same fleet,
// and tell each other what they hold, where sessions are at home and which
// prompts were placed where. Only hashes and the addresses of upstreams leave a
// Caddy. No request waits for the others: what they have told is used as far as
// it has come.
//
// Policies of the same fleet should agree on it. Where they do not, that of the
// policy which has started last is used.
type Share struct {
	// Redis shares over Redis or Valkey. It must be set.
	Redis *RedisShare `json:"redis,omitempty"`
}

// RedisShare says how Redis or Valkey is reached, from version 5.0 on. Global
// placeholders are replaced in all texts when the config is loaded, and must have
// a value: a password is `{env.REDIS_PASSWORD}` or `{file./run/secrets/redis}`, so
// that nobody reads it in the config.
type RedisShare struct {
	// Addresses are those of the server, of Sentinels if `master` is set, or of
	// nodes of a Cluster, each as host:port, host or the path of a unix socket.
	// The port is 6379 where it is missing, and 26379 for a Sentinel. URLs are
	// refused: addresses are shown, and a password does not belong into them.
	Addresses []string `json:"addresses,omitempty"`

	// Username is the user to log in as. It needs a password. Default: none,
	// which is the user called default.
	Username string `json:"username,omitempty"`

	// Password is the user's. Default: none.
	Password string `json:"password,omitempty"`

	// Master is the name by which the Sentinels know the server to use, which
	// they find again after a failover. Default: none, without Sentinels.
	Master string `json:"master,omitempty"`

	// SentinelUsername is the user to log in as with the Sentinels.
	// Default: none.
	SentinelUsername string `json:"sentinel_username,omitempty"`

	// SentinelPassword is the password for the Sentinels. Default: none.
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// Cluster says that the addresses are of nodes of a Redis Cluster. A fleet
	// is on one of its nodes. Default: false.
	Cluster bool `json:"cluster,omitempty"`

	// DB is the number of the database. A Cluster has only 0. Default: 0.
	DB int `json:"db,omitempty"`

	// Prefix is what keys begin with; the fleet's name follows. Each fleet has
	// one key. Default: `llm_loadaware:`.
	Prefix string `json:"prefix,omitempty"`

	// Timeout is how long Redis may take to answer before that counts as an
	// error, at least 1ms. Connecting may take a second. Default: 20ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// TLS encrypts the connections, to Sentinels too. Default: none.
	TLS *RedisTLS `json:"tls,omitempty"`
}

// RedisTLS says how connections to Redis are encrypted. An empty one checks the
// server against the authorities that the system trusts.
type RedisTLS struct {
	// CA lists files with certificates, in PEM, of the authorities to trust
	// instead of the system's. Default: none.
	CA []string `json:"ca,omitempty"`

	// ClientCertificate is a file with the certificate to show, in PEM. A Redis
	// with TLS asks for one unless its `tls-auth-clients` is `no`.
	// Default: none.
	ClientCertificate string `json:"client_certificate,omitempty"`

	// ClientKey is the file with its key. Default: none.
	ClientKey string `json:"client_key,omitempty"`

	// ServerName is the name that the server's certificate must have.
	// Default: the host of the address.
	ServerName string `json:"server_name,omitempty"`

	// InsecureSkipVerify takes every certificate for the server's. Whoever is on
	// the way can then read and change what is shared. Default: false.
	InsecureSkipVerify bool `json:"insecure_skip_verify,omitempty"`
}

var (
	errNoMedium    = errors.New("share must name what to share over: redis")
	errNoAddress   = errors.New("share redis needs an address")
	errManyServers = errors.New("share redis with several addresses needs master or cluster")

	// it does not show the address, in which there may be a password
	errAddressURL = errors.New("share redis address must be host:port, host or the path of a unix socket, without :// and @; " +
		"a password is set by password")
)

// validate checks what is set. It takes nil for a fleet that is not shared. It does
// not look into placeholders.
func (s *Share) validate() error {
	if s == nil {
		return nil
	}
	r := s.Redis
	if r == nil {
		return errNoMedium
	}
	switch {
	case len(r.Addresses) == 0:
		return errNoAddress
	case slices.ContainsFunc(r.Addresses, mayHaveSecret):
		return errAddressURL
	case r.Master != "" && r.Cluster:
		return errors.New("share redis cannot have both master and cluster")
	case len(r.Addresses) > 1 && r.Master == "" && !r.Cluster:
		return errManyServers
	case r.Username != "" && r.Password == "":
		return errors.New("share redis username needs password")
	case r.SentinelUsername != "" && r.SentinelPassword == "":
		return errors.New("share redis sentinel_username needs sentinel_password")
	case r.SentinelPassword != "" && r.Master == "":
		return errors.New("share redis sentinel_password needs master")
	case r.DB < 0:
		return errors.New("share redis db must not be negative")
	case r.DB > 0 && r.Cluster:
		return errors.New("share redis db must be 0 in a cluster")
	case r.Timeout != 0 && time.Duration(r.Timeout) < time.Millisecond:
		return errors.New("share redis timeout must be at least 1ms")
	case r.TLS != nil && (r.TLS.ClientCertificate == "") != (r.TLS.ClientKey == ""):
		return errors.New("share redis tls needs both client_certificate and client_key or neither")
	}
	return nil
}

// withoutSecrets is the option with its defaults and without passwords. It takes nil
// for a fleet that is not shared.
func (s *Share) withoutSecrets() *Share {
	if s == nil {
		return nil
	}
	r := *s.Redis
	set(&r.Prefix, defaultSharePrefix)
	set(&r.Timeout, defaultShareTimeout)
	for _, secret := range []*string{&r.Password, &r.SentinelPassword} {
		if *secret != "" {
			*secret = "redacted"
		}
	}
	return &Share{Redis: &r}
}

// options are those of the named fleet's stream, with placeholders replaced and
// certificates read. identity is another number where anything of them is other.
func (r *RedisShare) options(fleet string) (o redis.Options, identity uint64, err error) {
	texts := newShareTexts()
	o = redis.Options{
		Username:         texts.replace("username", r.Username),
		Password:         texts.secret("password", r.Password),
		Master:           texts.replace("master", r.Master),
		SentinelUsername: texts.replace("sentinel_username", r.SentinelUsername),
		SentinelPassword: texts.secret("sentinel_password", r.SentinelPassword),
		Cluster:          r.Cluster,
		DB:               r.DB,
		Key:              texts.replace("prefix", cmp.Or(r.Prefix, defaultSharePrefix)) + fleet,
		Timeout:          time.Duration(cmp.Or(r.Timeout, defaultShareTimeout)),
	}
	for _, address := range r.Addresses {
		o.Addresses = append(o.Addresses, withPort(texts.replace("address", address), r.Master != ""))
	}
	o.TLS = r.TLS.config(texts)
	if texts.err == nil && slices.ContainsFunc(o.Addresses, mayHaveSecret) {
		return o, 0, errAddressURL
	}
	return o, texts.identity(r), texts.err
}

// mayHaveSecret reports whether an address looks like one with a user and a password.
func mayHaveSecret(address string) bool {
	return strings.Contains(address, "://") || strings.Contains(address, "@")
}

// withPort adds the port to an address that has none.
func withPort(address string, sentinel bool) string {
	if filepath.IsAbs(address) {
		return address
	}
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	port := redisPort
	if sentinel {
		port = sentinelPort
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}
