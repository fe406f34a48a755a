// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

const examplesFolder = "../examples"

// What is shipped as an example can be loaded, and every folder says what it is.
func TestExamples(t *testing.T) {
	readme := readFile(t, "../README.md")
	folders, err := os.ReadDir(examplesFolder)
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) == 0 {
		t.Fatal("there are no examples")
	}
	for _, folder := range folders {
		name := folder.Name()
		if !strings.Contains(readme, "(examples/"+name+")") {
			t.Errorf("README.md has no link to examples/%s", name)
		}
		t.Run(name, func(t *testing.T) { checkExample(t, filepath.Join(examplesFolder, name)) })
	}
}

func checkExample(t *testing.T, folder string) {
	caddyfiles := 0
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		switch base := entry.Name(); {
		case base == "Caddyfile" || strings.HasSuffix(base, ".Caddyfile"):
			caddyfiles++
			checkBlock(t, path, block{lang: "caddyfile", text: readFile(t, path)})
		case strings.HasSuffix(base, ".yaml"):
			checkBlock(t, path, block{lang: "yaml", text: readFile(t, path)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if caddyfiles == 0 {
		t.Error("there is no Caddyfile")
	}
	readme := readFile(t, filepath.Join(folder, "README.md"))
	for _, b := range fencedBlocks(t, readme) {
		checkBlock(t, fmt.Sprintf("README.md:%d", b.line), b)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced block of Markdown: what stands behind the fence is its
// language and, for a part of a Caddyfile, where the part belongs.
type block struct {
	lang, place, text string
	line              int
}

func fencedBlocks(t *testing.T, markdown string) []block {
	t.Helper()
	var blocks []block
	open := false
	for i, line := range strings.Split(markdown, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open:
			open = false
		case fence:
			open = true
			lang, place, _ := strings.Cut(info, " ")
			blocks = append(blocks, block{lang: lang, place: place, line: i + 1})
		case open:
			blocks[len(blocks)-1].text += line + "\n"
		}
	}
	if open {
		t.Error("README.md: the last fenced block does not end")
	}
	return blocks
}

// places are what a part of a Caddyfile needs around it.
var places = map[string]string{
	"":              "%s",
	"site":          "http://localhost {\n%s}\n",
	"reverse_proxy": "http://localhost {\nreverse_proxy localhost:8001 {\n%s}\n}\n",
	"policy":        "http://localhost {\nreverse_proxy localhost:8001 {\nlb_policy llm_loadaware {\n%s}\n}\n}\n",
}

func checkBlock(t *testing.T, at string, b block) {
	t.Helper()
	switch b.lang {
	case "caddyfile":
		place, ok := places[b.place]
		if !ok {
			t.Errorf("%s: nothing is known of a part of %q", at, b.place)
			return
		}
		if formatted := string(caddyfile.Format([]byte(b.text))); strings.TrimSpace(formatted) != strings.TrimSpace(b.text) {
			t.Errorf("%s is not formatted as caddy fmt would, which is:\n%s", at, formatted)
		}
		config := fmt.Sprintf(place, b.text)
		if _, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	case "json":
		if !json.Valid([]byte(b.text)) {
			t.Errorf("%s is no JSON", at)
		}
	case "yaml":
		documents := yaml.NewDecoder(strings.NewReader(b.text))
		for {
			var document map[string]any
			err := documents.Decode(&document)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Errorf("%s: %v", at, err)
				return
			}
		}
	}
}
