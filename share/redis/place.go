// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import "sync"

// place is where in the stream its reader and its writer are. All methods are
// safe for concurrent use.
type place struct {
	mu sync.Mutex

	// last is the greatest id that was read or written
	last position

	// begun says that the stream has begun anew and was not read since, and
	// behind that there is more to read of the past
	begun, behind bool
}

// latest is the greatest id that was read or written.
func (p *place) latest() position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// anew reports that the stream is to be read from its start.
func (p *place) anew() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// read notes that the entries up to at were read, from the start on or not, and
// whether there may be more at once. It reports whether they are of the past: of
// before the reader began, or of more than it has kept up with.
func (p *place) read(at position, start, more bool) (past bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.compare(p.last) > 0 {
		p.last = at
	}
	if start {
		p.begun = false
	}
	past = start || more || p.behind
	p.behind = more
	return past
}

// wrote notes the id of an entry that was written when before was the latest.
// Redis gives each entry a greater one than all of the stream before: if it is
// not, this is another stream.
func (p *place) wrote(at, before position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case at.compare(before) <= 0:
		p.last, p.begun = at, true
	case at.compare(p.last) > 0:
		p.last = at
	}
}
