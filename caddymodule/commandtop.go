// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// topPlacements is how many of the last placements of a fleet are shown.
const topPlacements = 10

// top shows fleets again and again.
type top struct {
	adminFlags
	fleet    string
	interval time.Duration
	count    int
}

func topCommand() *cobra.Command {
	t := new(top)
	cmd := &cobra.Command{
		Use:   "top [--fleet <name>] [--interval <duration>] [--count <n>] [--address <address>] [--config <path> [--adapter <name>]]",
		Short: "Shows the fleets as they are now, again and again",
		Long: `
Shows what each upstream of the fleets has in flight and reserved, what is known of
its engine, and the last placements, refreshed in place until it is interrupted. When
the output is no terminal, it is one line for each upstream and interval, in the words
of the admin endpoint.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return t.run(ctx, cmd.OutOrStdout())
		},
	}
	t.add(cmd)
	cmd.Flags().StringVar(&t.fleet, "fleet", "", "Name of the fleet (default all)")
	cmd.Flags().DurationVar(&t.interval, "interval", time.Second, "Time from one look to the next, at least 100ms")
	cmd.Flags().IntVar(&t.count, "count", 0, "How many looks to take, 0 for no end")
	return cmd
}

// look is what there is to show at one moment.
type look struct {
	time       time.Time
	fleets     []fleetStatus
	placements map[string][]placementStatus
}

// run ends when ctx does, after so many looks, or when the first look fails.
// Later failures are shown: Caddy may be restarted while somebody watches.
func (t *top) run(ctx context.Context, out io.Writer) error {
	endpoint, err := t.endpoint()
	if err != nil {
		return err
	}
	if t.interval < leastInterval {
		return fmt.Errorf("interval must be at least %s: %s", leastInterval, t.interval)
	}
	if t.count < 0 {
		return errors.New("count must not be negative")
	}
	l, err := t.look(endpoint)
	if err != nil {
		return err
	}
	show := printLines
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		screen := &screen{file}
		screen.open()
		defer screen.close()
		show = screen.show
	}
	ticker := time.NewTicker(t.interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if err := show(out, l, err); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		if n == t.count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		l, err = t.look(endpoint)
	}
}

// look asks for all that is shown.
func (t *top) look(endpoint adminEndpoint) (*look, error) {
	l := &look{time: time.Now(), placements: make(map[string][]placementStatus)}
	if t.fleet == "" {
		if err := endpoint.ask(http.MethodGet, adminFleetsPath, nil, nil, &l.fleets); err != nil {
			return nil, err
		}
	} else {
		l.fleets = make([]fleetStatus, 1)
		if err := endpoint.ask(http.MethodGet, fleetPath(t.fleet, ""), nil, nil, &l.fleets[0]); err != nil {
			return nil, err
		}
	}
	for _, f := range l.fleets {
		path := fmt.Sprintf("%s?limit=%d", fleetPath(f.Name, adminPlacementsPath), topPlacements)
		var list []placementStatus
		if err := endpoint.ask(http.MethodGet, path, nil, nil, &list); err != nil {
			return nil, err
		}
		l.placements[f.Name] = list
	}
	return l, nil
}

// printLines prints one line for each upstream.
func printLines(out io.Writer, l *look, err error) error {
	if err != nil {
		_, err = fmt.Fprintf(out, "time=%s error=%q\n", time.Now().Format(time.RFC3339), err.Error())
		return err
	}
	var page bytes.Buffer
	for _, f := range l.fleets {
		for i := range f.Upstreams {
			u := &f.Upstreams[i]
			fmt.Fprintf(&page, "time=%s fleet=%q upstream=%q state=%s requests_in_flight=%d requests_waiting=%d requests_elsewhere=%.0f prefill_tokens=%d sessions=%d",
				l.time.Format(time.RFC3339), f.Name, u.Upstream, u.State, u.RequestsInFlight, u.RequestsWaiting, u.RequestsElsewhere, u.PrefillTokens, u.Sessions)
			if u.PrefillRateTokens > 0 {
				fmt.Fprintf(&page, " prefill_rate_tokens=%.0f", u.PrefillRateTokens)
			}
			if u.Engine != nil && u.Engine.KVUsage != nil {
				fmt.Fprintf(&page, " kv_usage=%.3f", *u.Engine.KVUsage)
			}
			page.WriteByte('\n')
		}
	}
	_, err = page.WriteTo(out)
	return err
}
