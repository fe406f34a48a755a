// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// explaining is what a request to explain is asked with.
type explaining struct {
	adminFlags
	fleet, path string
	policy      int
	header      []string
	json        bool
}

func explainCommand() *cobra.Command {
	e := new(explaining)
	cmd := &cobra.Command{
		Use:   "explain [--fleet <name>] [--policy <n>] [--path <path>] [--header <field: value>]... [--json] [--address <address>] [--config <path> [--adapter <name>]] < body.json",
		Short: "Tells where a request would be placed now, and why",
		Long: `
Reads the body of an LLM request from the standard input and tells where it would be
placed now: what each upstream would cost, by the terms of the cost, in tokens.
Nothing is reserved or remembered.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.run(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	e.add(cmd)
	cmd.Flags().StringVar(&e.fleet, "fleet", defaultFleet, "Name of the fleet")
	cmd.Flags().IntVar(&e.policy, "policy", 0, "Position of the policy in the fleet's list of policies")
	cmd.Flags().StringVar(&e.path, "path", defaultExplainPath, "Path that the request has")
	cmd.Flags().StringArrayVarP(&e.header, "header", "H", nil, "Header field that the request has, as 'Field: value'")
	cmd.Flags().BoolVar(&e.json, "json", false, "Print the answer as JSON")
	return cmd
}

func (e *explaining) run(in io.Reader, out io.Writer) error {
	endpoint, err := e.endpoint()
	if err != nil {
		return err
	}
	header := make(http.Header)
	for _, line := range e.header {
		field, value, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("header must be as 'Field: value': %s", line)
		}
		header.Add(strings.TrimSpace(field), strings.TrimSpace(value))
	}
	query := url.Values{"path": {e.path}, "policy": {strconv.Itoa(e.policy)}}
	path := fleetPath(e.fleet, adminExplainPath) + "?" + query.Encode()
	// read first, so that its length is known: some requests are placed by that
	body, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the request from the standard input: %w", err)
	}
	var answer json.RawMessage
	if err := endpoint.ask(http.MethodPost, path, header, bytes.NewReader(body), &answer); err != nil {
		return err
	}
	if e.json {
		_, err := fmt.Fprintln(out, string(answer))
		return err
	}
	var p placementStatus
	if err := json.Unmarshal(answer, &p); err != nil {
		return fmt.Errorf("reading the explanation: %w", err)
	}
	return printExplanation(out, &p)
}

// printExplanation prints a placement with what each upstream would cost.
func printExplanation(out io.Writer, p *placementStatus) error {
	tokens := humanize.Comma(int64(p.PromptTokens)) + " prompt tokens"
	chosen := p.Upstream
	switch {
	case p.Shadow != nil:
		chosen = p.Shadow.Upstream
		fmt.Fprintf(out, "goes where another policy sends it, and would go to %s: %s, %s, %s of them uncached\n\n",
			printable(chosen), p.Shadow.Reason, tokens, humanize.Comma(int64(p.Shadow.UncachedTokens)))
	case p.Waits:
		fmt.Fprintf(out, "waits for room in the queue: %s\n\n", tokens)
	case p.Upstream == "":
		fmt.Fprintf(out, "goes nowhere: no upstream is available\n\n")
	default:
		fmt.Fprintf(out, "goes to %s: %s, %s, %s of them uncached\n\n",
			printable(p.Upstream), p.Reason, tokens, humanize.Comma(int64(p.UncachedTokens)))
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "cost\tload\tprefill\tuncached\teviction\tdelay\tcached_tokens\trequests\twaiting\t    upstream")
	for i := range p.Upstreams {
		u := &p.Upstreams[i]
		what := printable(u.Upstream)
		if u.State != "available" {
			what += " (" + u.State + ")"
		}
		mark := "    "
		if u.Upstream == chosen {
			mark = "  > "
		}
		if !u.Candidate {
			fmt.Fprintf(table, "-\t-\t-\t-\t-\t-\t-\t-\t-\t%s%s\n", mark, what)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s%s\n",
			rounded(u.Cost), rounded(u.Terms.Load), rounded(u.Terms.Prefill), rounded(u.Terms.Uncached), rounded(u.Terms.Eviction),
			rounded(u.Terms.Delay), u.CachedTokens, u.RequestsInFlight, u.RequestsWaiting, mark, what)
	}
	return table.Flush()
}

// rounded prints tokens without a part of one.
func rounded(tokens float64) string { return strconv.FormatFloat(tokens, 'f', 0, 64) }
