// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/engines/exposition"
)

const (
	// maxPage is how much is read of an answer: vLLM's metrics are some 100 KB
	// for each of its engines.
	maxPage = 4 << 20

	// maxDrain is how much is read of an answer that is of no use, so that its
	// connection can be used again.
	maxDrain = 64 << 10

	scrapeAgent = "caddy-llm_loadaware"
)

// The keys under which Caddy's transport looks for what a URL does not say.
const (
	dialInfoKey      = caddy.CtxKey("reverse_proxy.dial_info")
	proxyProtocolKey = "reverse_proxy.proxy_protocol_info"
)

var (
	errPlaceholders = errors.New("address has placeholders")
	errOneSocket    = errors.New("address stands for more than one socket")
	errTooLong      = fmt.Errorf("answer is longer than %d bytes", maxPage)
)

// statusError is an answer that is no page.
type statusError int

// Error implements error.
func (e statusError) Error() string {
	text := "status " + strconv.Itoa(int(e))
	if e == http.StatusUnauthorized || e == http.StatusForbidden {
		text += ": the header option of metrics sends credentials"
	}
	return text
}

// contentError is a page that cannot be read.
type contentError struct{ error }

// Unwrap returns the cause.
func (e contentError) Unwrap() error { return e.error }

// isAbsent reports that the upstream answers, but has no such page.
func isAbsent(err error) bool {
	status, ok := errors.AsType[statusError](err)
	return errors.Is(err, exposition.ErrNoSeries) ||
		ok && (status == http.StatusNotFound || status == http.StatusNotImplemented)
}

// isAnswer reports that the upstream has answered.
func isAnswer(err error) bool {
	_, status := errors.AsType[statusError](err)
	_, content := errors.AsType[contentError](err)
	return status || content
}

// isSound reports that the upstream has answered, and not that it is broken.
func isSound(err error) bool {
	status, ok := errors.AsType[statusError](err)
	return ok && status < http.StatusInternalServerError
}

// address is where an upstream is.
type address struct{ caddy.NetworkAddress }

// parseAddress understands an upstream's address as the proxy does.
func parseAddress(name string) (address, error) {
	if strings.Contains(name, "{") {
		return address{}, errPlaceholders
	}
	parsed, err := caddy.ParseNetworkAddress(name)
	if err != nil {
		return address{}, fmt.Errorf("parsing address: %w", err)
	}
	if parsed.PortRangeSize() != 1 {
		return address{}, errOneSocket
	}
	return address{parsed}, nil
}

// withPort returns the address of another port of the host; 0 is the same one.
func (a address) withPort(port int) address {
	if port == 0 {
		return a
	}
	if a.IsUnixNetwork() || a.IsFdNetwork() {
		a.Network, a.Host = "tcp", "localhost"
	}
	a.StartPort, a.EndPort = uint(port), uint(port)
	return a
}

// dialInfo returns what the transport dials.
func (a address) dialInfo(name string) reverseproxy.DialInfo {
	return reverseproxy.DialInfo{
		Upstream: &reverseproxy.Upstream{Dial: name},
		Network:  a.Network,
		Address:  a.JoinHostPort(0),
		Host:     a.Host,
		Port:     strconv.FormatUint(uint64(a.StartPort), 10),
	}
}

// pageReader reads an answer, and returns what gives it to the fleet.
type pageReader func(io.Reader) (give func(now time.Time, valid time.Duration), err error)

func (t *scrapeTarget) readMetrics(page io.Reader) (func(time.Time, time.Duration), error) {
	report, err := exposition.Parse(page)
	if err != nil {
		return nil, contentError{err}
	}
	return func(now time.Time, valid time.Duration) { t.fleet.Observe(t.name, report, now, valid) }, nil
}

func (t *scrapeTarget) readModels(page io.Reader) (func(time.Time, time.Duration), error) {
	body, err := io.ReadAll(page)
	if err != nil {
		return nil, contentError{err}
	}
	models, err := engines.ParseModels(body)
	if err != nil {
		return nil, contentError{err}
	}
	return func(now time.Time, valid time.Duration) { t.fleet.ObserveModels(t.name, models, now, valid) }, nil
}

// fetch asks for a page and reads it to its end, all within the timeout.
func (t *scrapeTarget) fetch(ctx context.Context, p *scrapePage, at address) (func(time.Time, time.Duration), error) {
	timeout := time.Duration(t.config.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no whole answer within %s", timeout))
	defer cancel()
	r, err := t.request(ctx, p, at)
	if err != nil {
		return nil, err
	}
	// not through a client, which would follow redirects
	res, err := t.proxy.Transport.RoundTrip(r)
	if err != nil {
		return nil, orCause(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, res.Body, maxDrain)
		return nil, statusError(res.StatusCode)
	}
	give, err := p.read(&bounded{res.Body, maxPage})
	if err != nil {
		return nil, orCause(ctx, err)
	}
	return give, nil
}

// orCause says of an error that comes of the end of ctx why that ended.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// request returns a question as the proxy would send it: the transport finds
// everything in the context that it finds there for a proxied request. As for
// that, the URL's scheme is the transport's choice, and its host the address,
// though that may be the path of a socket: connections are kept by it.
func (t *scrapeTarget) request(ctx context.Context, p *scrapePage, at address) (*http.Request, error) {
	info := at.dialInfo(t.name)
	repl := caddy.NewReplacer()
	repl.Set("http.reverse_proxy.upstream.address", info.String())
	repl.Set("http.reverse_proxy.upstream.hostport", info.Address)
	repl.Set("http.reverse_proxy.upstream.host", info.Host)
	repl.Set("http.reverse_proxy.upstream.port", info.Port)
	// what waits for a variable would wait for one of a client
	vars := map[string]any{proxyProtocolKey: reverseproxy.ProxyProtocolInfo{
		AddrPort: netip.AddrPortFrom(netip.IPv4Unspecified(), 0),
	}}
	ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, repl)
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, vars)
	ctx = context.WithValue(ctx, dialInfoKey, info)

	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+p.path, nil)
	if err != nil {
		return nil, fmt.Errorf("making request: %w", err)
	}
	r.URL.Scheme, r.URL.Host = "", info.Address
	if !at.IsUnixNetwork() && !at.IsFdNetwork() {
		r.Host = info.Address
	}
	r.Header.Set("Accept", p.accept)
	// neither side's work is worth it, and what is read is what was sent
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", scrapeAgent)
	t.addHeaders(r, repl)
	return r, nil
}

// addHeaders adds the configured header fields, which replace those above.
func (t *scrapeTarget) addHeaders(r *http.Request, repl *caddy.Replacer) {
	for field, values := range t.config.Headers {
		field = http.CanonicalHeaderKey(field)
		if field == "Host" && len(values) > 0 {
			r.Host = repl.ReplaceKnown(values[0], "")
			continue
		}
		r.Header.Del(field)
		for _, value := range values {
			r.Header.Add(field, repl.ReplaceKnown(value, ""))
		}
	}
}

// bounded fails where a page goes on after its bound, so that no part of one
// passes for the whole.
type bounded struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
