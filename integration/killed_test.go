// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// talks are conversations of agents with simulated engines. Half of them name
// their session, the others are known by their prompts.
type talks struct {
	t     *testing.T
	s     *server
	hosts []*vllmsim.Host
	texts [][]string
}

// turn lets every conversation have another turn, and returns how many tokens
// the engines have computed for that.
func (k *talks) turn(from int) int64 {
	k.t.Helper()
	before := k.computed()
	for i := range k.texts {
		// another one is first each time, so that taking turns meets no home
		i = (i + from) % len(k.texts)
		k.texts[i] = append(k.texts[i], "an answer", words("another question", 500))
		var header []string
		if i%2 == 0 {
			header = []string{"X-Session-ID", fmt.Sprint(i)}
		}
		if status, text := exchange(k.t, k.s.sites[0], chatPath, conversation(k.texts[i]...), header...); status != http.StatusOK {
			k.t.Fatalf("status %d: %s", status, text)
		}
	}
	return k.computed() - before
}

// computed is how many prompt tokens the engines have computed so far.
func (k *talks) computed() (tokens int64) {
	for _, host := range k.hosts {
		tokens += host.Server().Stats().PrefillTokens
	}
	return tokens
}

// A Caddy that is killed between two writes of what it knows leaves conversations
// where their caches are. Without what was stored the engines compute most of them
// again.
func TestKilledCaddyFindsCaches(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Caddy in processes of its own")
	}
	k := &talks{t: t, s: newServer(t)}
	for range 4 {
		k.hosts = append(k.hosts, simulated(t, vllmsim.ServerConfig{MaxOutputTokens: 4}))
	}
	for i := range 23 {
		k.texts = append(k.texts, []string{words(fmt.Sprint("task ", i), 6000)})
	}
	config := fmt.Sprintf("{site0} {\nllm_loadaware\nreverse_proxy %s {\nlb_policy llm_loadaware\n}\n}\n", hostAddresses(k.hosts...))

	stored := k.s.spawn(t, config)
	k.turn(0)
	k.turn(5)
	stored.end(syscall.SIGTERM)

	// what this one learns is not stored
	killed := k.s.spawn(t, config)
	before := k.turn(11)
	killed.end(syscall.SIGKILL)

	restored := k.s.spawn(t, config)
	after := k.turn(17)
	restored.end(syscall.SIGTERM)

	if err := os.Remove(k.s.stored()); err != nil {
		t.Fatal(err)
	}
	k.s.spawn(t, config)
	without := k.turn(2)

	t.Logf("computed tokens of a turn of all: %d before, %d after, %d with nothing stored", before, after, without)
	if float64(after) > 1.25*float64(before) {
		t.Errorf("the turn after the kill computed %d tokens, want no more than a quarter above the %d before it", after, before)
	}
	if without < 3*after {
		t.Errorf("with nothing stored a turn computed %d tokens, want several times the %d with it", without, after)
	}
}
