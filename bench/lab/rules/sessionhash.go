// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// sessionHash places a session where rendezvous hashing puts its name, and a
// request without a session anywhere.
type sessionHash struct {
	books
	config Config
	salts  []uint64
}

func newSessionHash(c Config) Rule {
	p := &sessionHash{books: newBooks(c), config: c, salts: make([]uint64, c.Engines)}
	for i := range p.salts {
		p.salts[i] = c.Random.Uint64()
	}
	return p
}

func (p *sessionHash) Place(r *Request, _ time.Duration, v View) int {
	if r.Session == 0 {
		return p.enter(r, v.Usable[p.config.Random.IntN(len(v.Usable))], 0)
	}
	best, highest := -1, uint64(0)
	for _, engine := range v.Usable {
		if weight := rendezvous(r.Session, p.salts[engine]); best < 0 || weight > highest {
			best, highest = engine, weight
		}
	}
	return p.enter(r, best, 0)
}

// rendezvous is the weight of an engine for a session.
func rendezvous(session, salt uint64) uint64 {
	h := session ^ salt
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
