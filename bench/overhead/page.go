// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pageHost is the host name of the live page's site.
const pageHost = "page.localhost"

// maxViewers is how many may watch the page.
const maxViewers = 1000

// pagePrompt is the size of the prompts under the page.
const pagePrompt = 10_000

// pageFigure is what Caddy needs under a number of viewers. CPU is the median of
// its turns in percent of one core, and More the median over the rounds of what it
// is more than without viewers in the same round.
type pageFigure struct {
	Viewers int     `json:"viewers"`
	Rate    float64 `json:"rate"`
	CPU     float64 `json:"cpu_percent"`
	More    float64 `json:"cpu_percent_more"`
	Events  float64 `json:"events_per_second"`
	Bytes   float64 `json:"bytes_per_event"`
}

// pageTurn is one turn of one number of viewers.
type pageTurn struct {
	cpu, rate, events, bytes float64
}

// measurePage measures Caddy under a steady load, without viewers of the live page,
// with one and with many, in turn.
func (s settings) measurePage(ctx context.Context, servers *upstreams, r *results) (err error) {
	s.policies = [2]string{s.policies[0], loadAware}
	p, err := s.startProxy(ctx, servers, s.cpuProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	viewers := []int{0, 1, s.viewers}
	turns := make([][]pageTurn, len(viewers))
	// the first round warms up
	for round := range s.rounds + 1 {
		fmt.Fprintf(os.Stderr, "live page, round %d of %d\n", round, s.rounds)
		for i := range viewers {
			// who goes first changes, so that no drift favors one
			at := (i + round) % len(viewers)
			t, err := s.takePageTurn(ctx, p, viewers[at])
			if err != nil {
				return fmt.Errorf("%d viewers: %w", viewers[at], err)
			}
			if round > 0 {
				turns[at] = append(turns[at], t)
			}
		}
	}
	for at := range viewers {
		r.Page = append(r.Page, pageFigureOf(viewers[at], turns[at], turns[0]))
	}
	return nil
}

func pageFigureOf(viewers int, turns, without []pageTurn) pageFigure {
	of := func(value func(round int) float64) float64 {
		values := make([]float64, len(turns))
		for round := range turns {
			values[round] = value(round)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return pageFigure{
		Viewers: viewers,
		Rate:    of(func(i int) float64 { return turns[i].rate }),
		CPU:     of(func(i int) float64 { return turns[i].cpu }),
		More:    of(func(i int) float64 { return turns[i].cpu - without[i].cpu }),
		Events:  of(func(i int) float64 { return turns[i].events }),
		Bytes:   of(func(i int) float64 { return turns[i].bytes }),
	}
}

// takePageTurn sends requests at the rate for the length of a turn while viewers
// watch.
func (s settings) takePageTurn(ctx context.Context, p *proxy, viewers int) (t pageTurn, err error) {
	w, err := p.watchPage(ctx, viewers)
	if err != nil {
		return t, err
	}
	before, err := p.ask(askCollect)
	if err != nil {
		return t, errors.Join(err, w.stop())
	}
	begin, events, bytes := time.Now(), w.events.Load(), w.bytes.Load()
	sent, err := s.sendSteadily(ctx, p)
	elapsed := time.Since(begin).Seconds()
	after, failure := p.ask(askUsage)
	events, bytes = w.events.Load()-events, w.bytes.Load()-bytes
	t.cpu = 100 * (after.CPU - before.CPU).Seconds() / elapsed
	t.rate = float64(sent) / elapsed
	t.events = float64(events) / elapsed
	t.bytes = float64(bytes) / float64(max(events, 1))
	return t, errors.Join(err, failure, w.stop())
}

// sendSteadily sends requests at the rate for the length of a turn, and waits for
// those under way. Clients that all wait for an answer let some fall out.
func (s settings) sendSteadily(ctx context.Context, p *proxy) (sent int64, err error) {
	body := newPrompt(pagePrompt, true)
	due := make(chan struct{}, s.clients)
	var done atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range s.clients {
		wg.Go(func() {
			c := p.newClient(1, chatPath, answerStream)
			for range due {
				reader, length := body.body()
				if _, _, failure := c.exchange(ctx, reader, length); failure != nil {
					mu.Lock()
					err = errors.Join(err, failure)
					mu.Unlock()
					continue
				}
				done.Add(1)
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(s.rate))
	defer tick.Stop()
	for end := time.Now().Add(s.turn); time.Now().Before(end); <-tick.C {
		select {
		case due <- struct{}{}:
		default:
		}
	}
	close(due)
	wg.Wait()
	return done.Load(), err
}

// watching are viewers of the page.
type watching struct {
	cancel        context.CancelFunc
	readers       sync.WaitGroup
	events, bytes atomic.Int64
	failed        atomic.Pointer[error]
}

// watchPage connects viewers and returns when each has seen an event.
func (p *proxy) watchPage(ctx context.Context, viewers int) (*watching, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{cancel: cancel}
	for range viewers {
		res, err := p.openPage(ctx)
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
		lines := bufio.NewReader(res.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				res.Body.Close()
				return nil, errors.Join(fmt.Errorf("reading the first event: %w", err), w.stop())
			}
			if strings.HasPrefix(line, "data: ") {
				break
			}
		}
		w.readers.Go(func() {
			defer res.Body.Close()
			w.read(ctx, lines)
		})
	}
	return w, nil
}

func (p *proxy) openPage(ctx context.Context) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pageHost+"/?events", http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("opening the page's events: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("opening the page's events: status %s", res.Status)
	}
	return res, nil
}

// read counts events until ctx ends.
func (w *watching) read(ctx context.Context, lines *bufio.Reader) {
	for {
		line, err := lines.ReadSlice('\n')
		w.bytes.Add(int64(len(line)))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			if ctx.Err() == nil {
				w.failed.Store(&err)
			}
			return
		case len(line) > 1:
			w.events.Add(1)
		}
	}
}

// stop lets the viewers leave, and fails where one could not watch to the end.
func (w *watching) stop() error {
	w.cancel()
	w.readers.Wait()
	if err := w.failed.Load(); err != nil {
		return fmt.Errorf("watching: %w", *err)
	}
	return nil
}

func (r *results) printPage(out io.Writer) error {
	table := newTable(out)
	fmt.Fprintln(table, "viewers\trequests per second\tCPU % of a core\tmore\tevents per second\tbytes per event\t")
	for _, f := range r.Page {
		fmt.Fprintf(table, "%d\t%.0f\t%.2f\t%+.2f\t%.1f\t%.0f\t\n", f.Viewers, f.Rate, f.CPU, f.More, f.Events, f.Bytes)
	}
	return table.Flush()
}
