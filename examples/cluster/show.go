// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const (
	burst         = 120
	conversations = 30
	turns         = 4
)

// show sends a burst of cold prompts through both Caddys at once, and
// conversations whose turns come through one and the other, and prints where they
// went.
func (c *cluster) show(ctx context.Context, out io.Writer) error {
	if err := c.meet(ctx); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%d Caddys, Redis and %d servers\t", caddys, servers)
	for _, h := range c.hosts {
		fmt.Fprintf(table, "%s\t", h.Addr())
	}
	fmt.Fprintln(table)
	if err := c.showBurst(ctx, table); err != nil {
		return err
	}
	moves, err := c.showConversations(ctx, table)
	if err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d turns were not at the server of the turn before.\n", moves, conversations*(turns-1))
	return nil
}

// count prints a row of how often each server was chosen.
func (c *cluster) count(table io.Writer, what string, chosen []string) {
	fmt.Fprintf(table, "%s\t", what)
	for _, h := range c.hosts {
		n := 0
		for _, upstream := range chosen {
			if upstream == h.Addr() {
				n++
			}
		}
		fmt.Fprintf(table, "%d\t", n)
	}
	fmt.Fprintln(table)
}

func (c *cluster) showBurst(ctx context.Context, table io.Writer) error {
	chosen := make([]string, burst)
	err := atOnce(burst, func(i int) (err error) {
		chosen[i], err = c.send(ctx, i, "", text(fmt.Sprint("cold ", i), 6000))
		return err
	})
	c.count(table, fmt.Sprintf("burst of %d cold prompts through both", burst), chosen)
	for i, site := range c.sites {
		var here []string
		for j := i; j < burst; j += caddys {
			here = append(here, chosen[j])
		}
		c.count(table, "  through "+site, here)
	}
	return err
}

func (c *cluster) showConversations(ctx context.Context, table io.Writer) (moves int, err error) {
	var chosen [turns][]string
	said := make([][]string, conversations)
	for turn := range turns {
		chosen[turn] = make([]string, conversations)
		err := atOnce(conversations, func(i int) (err error) {
			said[i] = append(said[i], text(fmt.Sprint("conversation ", i, " turn ", turn), 1000))
			chosen[turn][i], err = c.send(ctx, i+turn, fmt.Sprint("conversation ", i), said[i]...)
			return err
		})
		if err != nil {
			return 0, err
		}
		c.count(table, fmt.Sprintf("turn %d of %d conversations", turn+1, conversations), chosen[turn])
		for i := range conversations {
			if turn > 0 && chosen[turn][i] != chosen[turn-1][i] {
				moves++
			}
		}
	}
	return moves, nil
}

// atOnce does something n times at once.
func atOnce(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// text is one of about n tokens that begins with mark.
func text(mark string, n int) string {
	return mark + strings.Repeat(" word", n*4/5)
}

// send sends the messages of a conversation through one of the Caddys, reads the
// answer and returns where it came from.
func (c *cluster) send(ctx context.Context, through int, session string, said ...string) (upstream string, err error) {
	messages := make([]map[string]string, len(said))
	for i, s := range said {
		messages[i] = map[string]string{"role": "user", "content": s}
	}
	body, err := json.Marshal(map[string]any{"model": "sim-model", "stream": true, "max_tokens": 8, "messages": messages})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.sites[through%caddys]+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set("X-Session-Id", session)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %s", res.Status)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.Header.Get("X-Upstream"), err
}

// patience is how long the Caddys may take to hear of each other.
const patience = 30 * time.Second

// meet waits until the Caddys have heard of each other.
func (c *cluster) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, admin := range c.admins {
		for {
			met, err := peers(ctx, admin)
			if err != nil {
				return fmt.Errorf("asking a Caddy for its peers: %w", err)
			}
			if met == caddys-1 {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return errors.New("the Caddys do not hear of each other")
			}
		}
	}
	return nil
}

// peers is how many other Caddys one has heard of.
func peers(ctx context.Context, admin string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/llm_loadaware/fleets/cluster", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var fleet struct{ Share struct{ Peers int } }
	err = json.NewDecoder(res.Body).Decode(&fleet)
	return fleet.Share.Peers, err
}
