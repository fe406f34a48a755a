// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

// ForgetSessions forgets every session and returns how many there were. The next
// request of each begins it anew, where the prefix index sends it. What is in
// flight goes on.
func (f *Fleet) ForgetSessions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.sessions.Len()
	f.sessions.Clear()
	return n
}
