// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/internal/crew"
	"github.com/caddy-llm/loadaware/internal/redisserver"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// stage is what one run is measured on.
type stage struct {
	hosts  []*vllmsim.Host
	caddys []*crew.Caddy
	redis  *redisserver.Server // nil where nothing is shared
	folder string
}

// open starts servers with empty caches, Caddys with a policy in front of them, a
// Redis if they share, and the clock of a driver.
func (s settings) open(policy string, caddys int) (*stage, *driver, error) {
	st := new(stage)
	sites, err := st.start(s, policy, caddys)
	if err != nil {
		return nil, nil, errors.Join(err, st.stop())
	}
	return st, &driver{
		settings: s,
		sites:    sites,
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
		start:    time.Now(),
	}, nil
}

func (st *stage) start(s settings, policy string, caddys int) (sites []string, err error) {
	upstreams, err := st.startServers(s)
	if err != nil {
		return nil, err
	}
	redis := ""
	if strings.HasSuffix(policy, " share") {
		if st.redis, err = redisserver.Start(""); err != nil {
			return nil, err
		}
		redis = st.redis.Addr
	}
	if st.folder, err = os.MkdirTemp("", "loadaware-load"); err != nil {
		return nil, fmt.Errorf("making folder: %w", err)
	}
	for i := range caddys {
		addresses, err := crew.FreeAddresses(2)
		if err != nil {
			return nil, err
		}
		site := addresses[0]
		text := fmt.Sprintf("{\n\tadmin %s\n\tstorage file_system %s\n\tpersist_config off\n\tgrace_period 1s\n\tlog {\n\t\tlevel ERROR\n\t}\n}\n"+
			"http://%s {\n\tllm_loadaware\n\treverse_proxy %s {\n\t\tlb_policy %s\n\t}\n}\n",
			addresses[1], filepath.Join(st.folder, fmt.Sprint(i)), site, strings.Join(upstreams, " "), configure(policy, redis))
		file := filepath.Join(st.folder, fmt.Sprint(i, ".Caddyfile"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("writing Caddyfile: %w", err)
		}
		caddy, err := crew.Start(file, site)
		if err != nil {
			return nil, err
		}
		st.caddys = append(st.caddys, caddy)
		sites = append(sites, site)
	}
	return sites, nil
}

// startServers starts the servers and returns their addresses.
func (st *stage) startServers(s settings) (addresses []string, err error) {
	for i := range s.engines {
		host, err := vllmsim.NewHost(vllmsim.NewServer(vllmsim.ServerConfig{
			Engine:          vllmsim.Config{KVTokens: s.kvTokens, BlockTokens: 64, Seed: uint64(i + 1)},
			Speed:           s.speed,
			MaxOutputTokens: 1 << 20,
		}))
		if err != nil {
			return nil, fmt.Errorf("starting simulated server: %w", err)
		}
		st.hosts = append(st.hosts, host)
		addresses = append(addresses, host.Addr())
	}
	st.hosts[0].Server().SetFault(vllmsim.Fault{Slow: s.slow})
	return addresses, nil
}

// stop ends everything.
func (st *stage) stop() (err error) {
	for _, caddy := range st.caddys {
		err = errors.Join(err, caddy.Stop())
	}
	for _, host := range st.hosts {
		host.Close()
	}
	if st.redis != nil {
		err = errors.Join(err, st.redis.Stop())
	}
	return errors.Join(err, os.RemoveAll(st.folder))
}
