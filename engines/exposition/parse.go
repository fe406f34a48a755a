// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/caddy-llm/loadaware/engines"
)

const (
	// maxLine is how long a line may be, in bytes. A series that is read here
	// takes 2 KiB at most; vLLM writes longer ones of its configuration.
	maxLine = 16 << 10

	// maxSeries is how many series of one page are read: 16 of each of 1,024
	// engines.
	maxSeries = 16 << 10

	// maxModelName is how long a model's name may be, in bytes.
	maxModelName = 512

	// maxReportModels is how many models a report names.
	maxReportModels = 64

	// maxComplaint is how much of a parser's message is kept, in bytes: it
	// quotes what it did not understand.
	maxComplaint = 200
)

// ErrNoSeries says that a page has none of the series of vLLM that are read
// here: the server is another engine, or none.
var ErrNoSeries = errors.New("no series of vLLM")

// Parse reads the text exposition of a vLLM server's /metrics.
//
// Only the lines of the series that an [engines.Report] needs are looked at, so
// other series cost little and may be as broken as they like. HELP and TYPE
// lines are not needed. What a page does not tell is unknown in the report. So
// is a number of which one series is broken, cut off, infinite, negative or no
// number at all: a sum without one of its engines would pass for low load, and
// a counter for that of an engine that started anew.
//
// The error is [ErrNoSeries] where there is nothing to read, that of the first
// broken series where there is nothing else, and that of the reader where the
// page could not be read to its end. The report is empty then.
//
// The caller bounds the page, with a reader that fails at the bound: where a
// page merely ends early, a sum may lack the engines that are missing.
func Parse(from io.Reader) (engines.Report, error) {
	p := page{
		parser:  expfmt.NewTextParser(model.UTF8Validation),
		tallies: map[string]*tally{},
	}
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if p.take(line, err == nil); p.series > maxSeries {
			return engines.Report{}, fmt.Errorf("metrics: more than %d series to read", maxSeries)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return p.report()
		}
		if err != nil {
			return engines.Report{}, fmt.Errorf("metrics: %w", err)
		}
	}
}

// page is what was read of a page so far.
type page struct {
	parser expfmt.TextParser
	lines  int

	// series are those that are wanted; read are those of vLLM among them that
	// were understood, and complaint is about the first that was not.
	series, read int
	complaint    error

	tallies  map[string]*tally
	capacity capacity
	sleep    sleep
	models   []string
}

// take reads a line if its series is wanted. A line that is not whole, because
// it is too long or the page ends in it, is broken.
func (p *page) take(line []byte, whole bool) {
	p.lines++
	bare := seriesName(line)
	read, ok := wanted[string(bare)]
	if !ok {
		return
	}
	p.series++
	name := string(bare)
	t := p.tallies[name]
	if t == nil {
		t = new(tally)
		p.tallies[name] = t
	}
	m, err := p.parse(name, line, whole)
	if err != nil {
		t.broken = true
		if p.complaint == nil && name != startedName {
			p.complaint = fmt.Errorf("metrics: series %s: %w", name, err)
		}
		return
	}
	read(p, t, m)
	if name != startedName {
		p.read++
		p.addModel(label(m, "model_name"))
	}
}

// seriesName returns what a line begins with, or nothing if that cannot be
// wanted.
func seriesName(line []byte) []byte {
	for len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		line = line[1:]
	}
	// most lines of a page end here or soon after, which is what keeps a long
	// page cheap
	if !bytes.HasPrefix(line, []byte("vllm:")) && !bytes.HasPrefix(line, []byte(startedName)) {
		return nil
	}
	for i, c := range line {
		switch c {
		case '{', ' ', '\t', '\r', '\n':
			return line[:i]
		}
	}
	return line
}

var (
	errCut    = errors.New("line is too long or cut off")
	errNoName = errors.New("line has no value of it")
)

// parse reads the one series of a line. It is given no TYPE line, so that it
// makes no difference how a series was declared.
func (p *page) parse(name string, line []byte, whole bool) (*dto.Metric, error) {
	if !whole {
		return nil, errCut
	}
	families, err := p.parser.TextToMetricFamilies(bytes.NewReader(line))
	if complaint, ok := errors.AsType[expfmt.ParseError](err); ok {
		// the parser was shown a single line, and counts from there
		complaint.Line = p.lines
		if len(complaint.Msg) > maxComplaint {
			complaint.Msg = strings.ToValidUTF8(complaint.Msg[:maxComplaint], "")
		}
		return nil, complaint
	}
	if err != nil {
		return nil, err
	}
	metrics := families[name].GetMetric()
	if len(metrics) != 1 {
		return nil, errNoName
	}
	return metrics[0], nil
}

func (p *page) addModel(name string) {
	if name == "" || len(name) > maxModelName || len(p.models) == maxReportModels || slices.Contains(p.models, name) {
		return
	}
	p.models = append(p.models, name)
}

// report says what the whole page told.
func (p *page) report() (engines.Report, error) {
	switch {
	case p.read > 0:
	case p.complaint != nil:
		return engines.Report{}, p.complaint
	default:
		return engines.Report{}, ErrNoSeries
	}
	slices.Sort(p.models)
	return engines.Report{
		Running:       p.best(runningNames).total(),
		Waiting:       p.best(waitingNames).total(),
		KVUsage:       share(p.best(kvUsageNames).mean()),
		KVTokens:      p.kvTokens(),
		Computed:      p.best(computedNames).total(),
		Generated:     p.best(generatedNames).total(),
		PrefixQueries: p.best(queriesNames).total(),
		PrefixHits:    p.best(hitsNames).total(),
		Started:       p.best([]string{startedName}).only(),
		Asleep:        p.asleep(),
		Models:        p.models,
	}, nil
}

// best returns the tally of the first of names that the page has a series of,
// even if that is broken: an engine that reports under two names does not count
// the same under both.
func (p *page) best(names []string) tally {
	for _, name := range names {
		if t := p.tallies[name]; t != nil && (t.count > 0 || t.broken) {
			return *t
		}
	}
	return tally{}
}

// spoiled reports that a series of that name was broken.
func (p *page) spoiled(name string) bool {
	t := p.tallies[name]
	return t != nil && t.broken
}
