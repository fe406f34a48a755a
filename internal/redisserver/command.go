// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redisserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Do sends commands to a server without TLS over one connection, each as it would
// be typed, and returns the answers: texts as they are, of all else the first line.
// An answer that says no is an error.
func (s *Server) Do(commands ...string) (answers []string, err error) {
	conn, err := net.DialTimeout("tcp", s.Addr, patience)
	if err != nil {
		return nil, fmt.Errorf("connecting to redis: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	for _, command := range commands {
		if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
			return answers, fmt.Errorf("asking redis: %w", err)
		}
		answer, err := r.ReadString('\n')
		if err != nil {
			return answers, fmt.Errorf("asking redis: %w", err)
		}
		answer = strings.TrimSpace(answer)
		if refusal, ok := strings.CutPrefix(answer, "-"); ok {
			return answers, fmt.Errorf("redis says %s", refusal)
		}
		if length, ok := strings.CutPrefix(answer, "$"); ok {
			if answer, err = readText(r, length); err != nil {
				return answers, err
			}
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// readText reads a text of a length in bytes, and the end of the line behind it.
func readText(r io.Reader, length string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return "", fmt.Errorf("redis sends a text of %s bytes", length)
	}
	text := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(r, text); err != nil {
		return "", fmt.Errorf("asking redis: %w", err)
	}
	return string(text[:n]), nil
}

// Commands is how many commands the server has processed.
func (s *Server) Commands() (n int, err error) {
	answers, err := s.Do("INFO stats")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(answers[0], "total_commands_processed:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return 0, fmt.Errorf("reading the statistics of redis: %w", err)
	}
	return n, nil
}
