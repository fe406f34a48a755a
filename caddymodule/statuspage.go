// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"net/url"
	"time"
)

// statusFolder has the page as it is sent.
//
//go:embed statuspage
var statusFolder embed.FS

// statusFile is a file of the page.
type statusFile struct {
	name, kind, tag string
	text            []byte
}

// statusIndex is the page, and statusFiles what it asks for, by the names in its
// queries. statusPageVersion changes with any of them.
var (
	statusIndex = readStatusFile("index.html", "text/html; charset=utf-8")
	statusFiles = []statusFile{
		readStatusFile("page.css", "text/css; charset=utf-8"),
		readStatusFile("page.js", "text/javascript; charset=utf-8"),
		readStatusFile("icon.svg", "image/svg+xml"),
	}
	statusPageVersion = versionOf(append(statusFiles, statusIndex))
)

func readStatusFile(name, kind string) statusFile {
	text, err := statusFolder.ReadFile("statuspage/" + name)
	if err != nil {
		// the file is part of the program
		panic(err)
	}
	sum := sha256.Sum256(text)
	return statusFile{name, kind, `"` + hex.EncodeToString(sum[:8]) + `"`, text}
}

func versionOf(files []statusFile) string {
	sum := sha256.New()
	for _, f := range files {
		sum.Write([]byte(f.tag))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// guardStatusPage lets the page run nothing but its own files, and nobody frame or
// embed it.
func guardStatusPage(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("X-Robots-Tag", "noindex")
}

// serveStatusFile answers with the file that the query names, else with the page.
func serveStatusFile(w http.ResponseWriter, r *http.Request, query url.Values) {
	file := statusIndex
	for _, f := range statusFiles {
		if query.Has(f.name) {
			file = f
		}
	}
	header := w.Header()
	header.Set("Content-Type", file.kind)
	header.Set("ETag", file.tag)
	// kept, but asked for each time: another version has the same address
	header.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, file.name, time.Time{}, bytes.NewReader(file.text))
}
