// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

// recordedNames turns the ids of a recorded session into names. Ids are unique
// within their session; those of the tools and the system prompt stand for the
// same text in every session with the same lengths of both.
type recordedNames struct {
	blockTokens int
	source      uint64
	shared      int
	common      map[uint64]uint64 // position in the common beginning, by id
}

func (s *recordedSession) names(o Replay) *recordedNames {
	n := &recordedNames{
		blockTokens: o.BlockTokens,
		source:      mix(useText, o.Seed, uint64(s.ToolTokens), uint64(s.SystemTokens)),
		shared:      s.ToolTokens + s.SystemTokens,
		common:      make(map[uint64]uint64),
	}
	position := uint64(0)
	for _, run := range s.Requests[0].HashRuns {
		for k := uint64(0); k < run[1] && int(position+1)*recordedBlock <= n.shared; k++ {
			n.common[run[0]+k] = position
			position++
		}
	}
	return n
}

// request is the prompt of q. Its answer has no names: whether the next prompt
// repeats it is in that prompt's ids, and those cannot be told apart from what
// the client added.
func (n *recordedNames) request(q *recordedRequest, writer uint64) Request {
	step := uint64(n.blockTokens / recordedBlock)
	blocks := make([]uint64, 0, q.Input/n.blockTokens)
	passed := uint64(0) // ids before the run
	for _, run := range q.HashRuns {
		first, count := run[0], run[1]
		for next := (passed/step+1)*step - 1; next < passed+count && len(blocks) < cap(blocks); next += step {
			blocks = append(blocks, n.name(first+next-passed, writer))
		}
		passed += count
	}
	return Request{
		Tokens:   q.Input,
		Blocks:   blocks,
		Output:   max(q.Output, 1),
		Streamed: q.Type == typeStreamed,
		Writer:   writer,
		Shared:   min(n.shared, q.Input),
	}
}

func (n *recordedNames) name(id, writer uint64) uint64 {
	if position, ok := n.common[id]; ok {
		return mix(n.source, position)
	}
	return mix(writer, id)
}
