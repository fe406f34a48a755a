// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

// What is written to a terminal, as in ECMA-48 and for the other screen as in
// xterm.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// screen is a terminal that is written over in place.
type screen struct{ *os.File }

func (s *screen) open()  { _, _ = s.WriteString(enterScreen) }
func (s *screen) close() { _, _ = s.WriteString(leaveScreen) }

// show replaces what is on the screen, in one write. A failure is shown below
// what was there before.
func (s *screen) show(_ io.Writer, l *look, err error) error {
	width, height, sizeErr := term.GetSize(int(s.Fd()))
	if sizeErr != nil || width < 1 || height < 1 {
		// as terminals do that were told no size
		width, height = 80, 24
	}
	if err != nil {
		_, err = fmt.Fprintf(s, "\x1b[%d;1H%s%s", height, cutTo(printable(err.Error()), width), clearLine)
		return err
	}
	_, err = s.Write(frame(l, width, height))
	return err
}

// frame is what fills a screen of so many columns and lines.
func frame(l *look, width, height int) []byte {
	var page bytes.Buffer
	printScreen(&page, l)
	lines := strings.Split(strings.TrimRight(page.String(), "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	var frame bytes.Buffer
	frame.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			frame.WriteString("\r\n")
		}
		frame.WriteString(cutTo(line, width) + clearLine)
	}
	frame.WriteString(clearBelow)
	return frame.Bytes()
}

// cutTo returns the first n characters of s. All that is printed is one column
// wide, but for names in other scripts.
func cutTo(s string, n int) string {
	runes := []rune(s)
	return string(runes[:min(len(runes), n)])
}

// printScreen prints the fleets as tables, with their last placements.
func printScreen(out io.Writer, l *look) {
	if len(l.fleets) == 0 {
		fmt.Fprintf(out, "no fleet is in use   %s\n", l.time.Format(time.DateTime))
	}
	for i := range l.fleets {
		f := &l.fleets[i]
		waiting := 0
		for _, n := range f.QueueWaiting {
			waiting += n
		}
		fmt.Fprintf(out, "fleet %s   %d upstreams   %s sessions   %d queued   %s\n\n",
			printable(f.Name), len(f.Upstreams), humanize.Comma(int64(f.Sessions)), waiting, l.time.Format(time.DateTime))
		printUpstreams(out, f)
		printPlacements(out, l.placements[f.Name])
	}
}

func printUpstreams(out io.Writer, f *fleetStatus) {
	most := 1
	for i := range f.Upstreams {
		most = max(most, f.Upstreams[i].PrefillTokens)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "UPSTREAM\tSTATE\tREQUESTS\tWAITING\tPREFILL TOKENS\t\tKV USAGE\tTOKENS/S\tSESSIONS\tCACHED")
	for i := range f.Upstreams {
		u := &f.Upstreams[i]
		kv, rate, cached := "-", "-", "-"
		if u.Engine != nil && u.Engine.KVUsage != nil {
			kv = fmt.Sprintf("%.0f %%", 100**u.Engine.KVUsage)
		}
		if u.PrefillRateTokens > 0 {
			rate = humanize.Comma(int64(u.PrefillRateTokens))
		}
		if prompt := float64(u.PromptTokensEstimated); prompt > 0 {
			cached = fmt.Sprintf("%.0f %%", 100*(1-float64(u.PrefillTokensEstimated)/prompt))
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			printable(u.Upstream), u.State, u.RequestsInFlight, u.RequestsWaiting,
			humanize.Comma(int64(u.PrefillTokens)), bar(u.PrefillTokens, most), kv, rate, humanize.Comma(int64(u.Sessions)), cached)
	}
	_ = table.Flush()
	fmt.Fprintln(out)
}

func printPlacements(out io.Writer, list []placementStatus) {
	if len(list) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PLACED\tREASON\tUPSTREAM\tPROMPT\tUNCACHED\tFIRST OUTPUT\tEND\tMODEL")
	for i := range list {
		p := &list[i]
		first := "-"
		if p.FirstOutputMS > 0 {
			first = fmt.Sprintf("%.0f ms", p.FirstOutputMS)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			p.Time.Local().Format(time.TimeOnly), p.Reason, printable(p.Upstream),
			humanize.Comma(int64(p.PromptTokens)), humanize.Comma(int64(p.UncachedTokens)), first, p.Cause, printable(p.Model))
	}
	_ = table.Flush()
	fmt.Fprintln(out)
}

// barLength is how many characters a full bar has.
const barLength = 10

// bar draws n as a part of most, to an eighth of a character.
func bar(n, most int) string {
	eighths := n * barLength * 8 / most
	line := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		line += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return line + strings.Repeat(" ", barLength-len([]rune(line)))
}
