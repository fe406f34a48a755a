// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

// beliefTokens is how many predicted hits have to be measured before the
// result is used, and beliefWindow after how many the older half of them
// weighs half: some dozens of conversation turns, and some hundreds.
const (
	beliefTokens = 100_000
	beliefWindow = 2_000_000
)

// belief compares predicted prefix hits with those that an engine counts. They
// fall short where one address stands for several data-parallel engines, each
// with a cache of its own, and where the index believes in more than the engine
// has kept.
//
// Others may use the engine too, and their hits are in the counter: the share
// is then too high, at most 1, which is what is believed without it. No more of
// them is kept than the window holds, so that they are forgotten as fast.
type belief struct {
	predicted, measured float64
	pending             float64
}

// predict adds to what was predicted since the last report.
func (b *belief) predict(tokens float64) { b.pending += tokens }

// measure adds the hits that the engine has counted since the last report.
// Where it does not count them, nothing is compared.
func (b *belief) measure(hits float64, known bool) {
	if known {
		b.add(b.pending, hits)
	}
	b.pending = 0
}

func (b *belief) add(predicted, measured float64) {
	b.predicted += predicted
	b.measured = min(b.measured+measured, beliefWindow)
	if b.predicted > beliefWindow {
		b.predicted /= 2
		b.measured /= 2
	}
}

func (b *belief) share() float64 {
	if b.predicted < beliefTokens {
		return 1
	}
	return min(b.measured/b.predicted, 1)
}
