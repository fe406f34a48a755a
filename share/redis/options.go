// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"crypto/tls"
	"sync"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say where the stream is, and how it is reached.
type Options struct {
	// Addresses are where Redis is, each as host:port or the path of a unix
	// socket: one server, the Sentinels where Master is set, or some nodes of a
	// Cluster. There must be at least one.
	Addresses []string

	// Username and Password are sent to Redis if Password is not empty.
	Username, Password string

	// Master is the name by which Sentinels know the master, empty without
	// Sentinels; SentinelUsername and SentinelPassword are sent to these.
	Master, SentinelUsername, SentinelPassword string

	// Cluster says that Redis is a Cluster, even if there is one address.
	Cluster bool

	// DB is the number of the database; a Cluster has only 0.
	DB int

	// TLS encrypts the connections, nil for none.
	TLS *tls.Config

	// Key is the stream's.
	Key string

	// Timeout is how long Redis may take to answer, but for connecting, which
	// may take a second if that is longer. It must be positive.
	Timeout time.Duration
}

// connectTimeout is how long a connection may take to be made at least. Nothing
// waits for it but what is to be sent on it.
const connectTimeout = time.Second

// quiet turns the log of the driver off. It writes each failed try to the
// standard error, for the whole process.
var quiet = sync.OnceFunc(logging.Disable)

// client returns the driver's client, which connects when it is used.
func (o *Options) client() driver.UniversalClient {
	quiet()
	return driver.NewUniversalClient(&driver.UniversalOptions{
		Addrs:            o.Addresses,
		Username:         o.Username,
		Password:         o.Password,
		MasterName:       o.Master,
		SentinelUsername: o.SentinelUsername,
		SentinelPassword: o.SentinelPassword,
		IsClusterMode:    o.Cluster,
		DB:               o.DB,
		TLSConfig:        o.TLS,

		DialTimeout:           max(o.Timeout, connectTimeout),
		ReadTimeout:           o.Timeout,
		WriteTimeout:          o.Timeout,
		ContextTimeoutEnabled: true,

		// who sends tries again, with what is new by then
		MaxRetries:    -1,
		DialerRetries: 1,

		// one for reading, one for writing, and one more while one is replaced
		PoolSize: 3,

		// fewer commands that a user of Redis must be allowed
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
