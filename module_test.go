// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package loadaware

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module      = "github.com/caddy-llm/loadaware"
	caddyModule = "github.com/caddyserver/caddy/v2"
	redisModule = "github.com/redis/go-redis/v9"
)

// builder is the part of xcaddy's Builder that xcaddy.json sets.
type builder struct {
	CaddyVersion string `json:"caddy_version"`
	Plugins      []struct {
		PackagePath string `json:"module_path"`
		Version     string `json:"version"`
	} `json:"plugins"`
	Replacements []struct {
		Old string `json:"old"`
		New string `json:"new"`
	} `json:"replacements"`
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readBuilder(t *testing.T) builder {
	t.Helper()
	var b builder
	decoder := json.NewDecoder(strings.NewReader(read(t, "xcaddy.json")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		t.Fatalf("xcaddy.json: %v", err)
	}
	return b
}

// command is the xcaddy command line that does what the builder says.
func (b builder) command() string {
	args := []string{"build", b.CaddyVersion}
	for _, plugin := range b.Plugins {
		var with strings.Builder
		with.WriteString(plugin.PackagePath)
		if plugin.Version != "" {
			with.WriteString("@" + plugin.Version)
		}
		for _, replacement := range b.Replacements {
			if replacement.Old == plugin.PackagePath {
				with.WriteString("=" + replacement.New)
			}
		}
		args = append(args, "--with", with.String())
	}
	return strings.Join(args, " ")
}

func TestXcaddyMatchesGoMod(t *testing.T) {
	b := readBuilder(t)
	if len(b.Plugins) != 1 || b.Plugins[0].PackagePath != module {
		t.Errorf("plugins = %+v, want %s alone", b.Plugins, module)
	}
	if len(b.Replacements) != 1 || b.Replacements[0].Old != module || b.Replacements[0].New != "." {
		t.Errorf("replacements = %+v, want %s by this folder", b.Replacements, module)
	}
	if got := goList(t, "-m"); got[0] != module {
		t.Errorf("module is %s, want %s", got[0], module)
	}
	if got := goList(t, "-m", "-f", "{{.Version}}", caddyModule); got[0] != b.CaddyVersion {
		t.Errorf("caddy_version = %s, want %s as in go.mod", b.CaddyVersion, got[0])
	}
}

// goList returns the lines that go list prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// What the README tells people to run is what is built and tested.
func TestReadmeCommands(t *testing.T) {
	readme := read(t, "README.md")
	ci := strings.Join(strings.Fields(strings.ReplaceAll(read(t, ".ci/run"), "\\\n", " ")), " ")
	for _, command := range []string{readBuilder(t).command(), "go test -race -shuffle=on ./..."} {
		if !strings.Contains(readme, command) {
			t.Errorf("README.md does not say %q", command)
		}
		if !strings.Contains(ci, command) {
			t.Errorf(".ci/run does not run %q", command)
		}
	}
	if _, config, _ := strings.Cut(Example, "\n\n"); !strings.Contains(readme, strings.TrimSpace(config)) {
		t.Error("README.md does not show Caddyfile.example")
	}
}

// The images of the examples are built as the README says.
func TestDockerfiles(t *testing.T) {
	b := readBuilder(t)
	dockerfiles, err := filepath.Glob("examples/*/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if len(dockerfiles) == 0 {
		t.Error("there are no Dockerfiles")
	}
	for _, name := range dockerfiles {
		text := read(t, name)
		for _, line := range []string{b.command(), "FROM caddy:" + strings.TrimPrefix(b.CaddyVersion, "v")} {
			if !strings.Contains(text, line) {
				t.Errorf("%s does not say %q", name, line)
			}
		}
	}
}

// pure are the packages that decide. They know nothing of what carries the
// requests, so that the laboratory can drive them in virtual time.
var pure = map[string][]string{
	"picker":          nil,
	"sessions":        nil,
	"prefixes":        nil,
	"prompts":         nil,
	"engines":         nil,
	"internal/packed": nil,
	"fleet":           {"picker", "sessions", "prefixes", "engines", "internal/packed"},
	"share":           {"fleet", "picker", "sessions", "prefixes", "engines", "internal/packed"},
}

// The driver of Redis is known in one place.
func TestOnePackageKnowsRedis(t *testing.T) {
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...") {
		name, imports, _ := strings.Cut(line, " ")
		if knows := strings.Contains(imports, redisModule); knows != (name == module+"/share/redis") {
			t.Errorf("%s imports the driver of Redis: %t", name, knows)
		}
	}
}

func TestPurePackages(t *testing.T) {
	forbidden := []string{"net/http", caddyModule, "go.uber.org/zap", "github.com/prometheus", redisModule}
	for name, allowed := range pure {
		for _, dep := range goList(t, "-deps", "./"+name) {
			for _, prefix := range forbidden {
				if dep == prefix || strings.HasPrefix(dep, prefix+"/") {
					t.Errorf("package %s depends on %s", name, dep)
				}
			}
			if ours, ok := strings.CutPrefix(dep, module+"/"); ok && ours != name && !slices.Contains(allowed, ours) {
				t.Errorf("package %s imports %s", name, path.Base(ours))
			}
		}
	}
}
