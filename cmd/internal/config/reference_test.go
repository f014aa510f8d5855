package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

type documented struct {
	Name  string   `koanf:"name" help:"what it is called"`
	Words []string `koanf:"words" help:"a|b"`
	Wait  struct {
		For time.Duration `koanf:"for" help:"how long"`
		In  []struct {
			Room string `koanf:"room" help:"which one"`
			Seat struct {
				Number int `koanf:"number" help:"from 1 on"`
			} `koanf:"seat"`
		} `koanf:"in" help:"where"`
	} `koanf:"wait"`
	Socket string `koanf:"socket" env:"A_SOCKET" help:"of what"`
}

func TestReference(t *testing.T) {
	d := documented{Words: []string{"x", "y"}}
	d.Wait.For = time.Minute
	// Keys beside sections are in two places here.
	if _, err := config.Reference(config.Program{Name: "p"}, d); err == nil || !strings.Contains(err.Error(), "two places") {
		t.Errorf("settings in two places: %v", err)
	}
	type ordered struct {
		Name string `koanf:"name" help:"what it is called"`
		Rest struct {
			Words  []string `koanf:"words" help:"a|b"`
			Socket string   `koanf:"socket" env:"A_SOCKET" help:"of what"`
			In     []struct {
				Room string `koanf:"room" help:"which one"`
				Seat struct {
					Number int `koanf:"number" help:"from 1 on"`
				} `koanf:"seat"`
			} `koanf:"in" help:"where"`
		} `koanf:"rest"`
	}
	var o ordered
	o.Rest.Words = []string{"x", "y"}
	got, err := config.Reference(config.Program{Name: "p"}, o)
	if err != nil {
		t.Fatal(err)
	}
	const want = "\n## General\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n" +
		"| `name` | text |  | what it is called |\n" +
		"\n## `rest`\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n" +
		"| `rest.words` | text,... | `x,y` | a\\|b |\n" +
		"| `rest.socket` | text |  | of what; without it, variable `A_SOCKET` |\n" +
		"| `rest.in` | list |  | where; in the file only |\n" +
		"| `rest.in[].room` | text |  | which one |\n" +
		"| `rest.in[].seat.number` | integer | `0` | from 1 on |\n"
	_, rows, _ := strings.Cut(got, "An unknown key stops the start.\n")
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	type silent struct {
		Name string `koanf:"name"`
	}
	if _, err := config.Reference(config.Program{Name: "p"}, silent{}); err == nil || !strings.Contains(err.Error(), "name has no help text") {
		t.Errorf("a setting without help text: %v", err)
	}
}

func TestJSONSchema(t *testing.T) {
	got, err := config.JSONSchema(documented{}, "socket")
	if err != nil {
		t.Fatal(err)
	}
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	}
	text := func(help string) map[string]any { return map[string]any{"type": "string", "description": help} }
	want := object(map[string]any{
		"name":  text("what it is called"),
		"words": map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "description": "a|b"},
		"wait": object(map[string]any{
			"for": map[string]any{"type": []string{"string", "integer"}, "description": "how long"},
			"in": map[string]any{"type": "array", "description": "where", "items": object(map[string]any{
				"room": text("which one"),
				"seat": object(map[string]any{"number": map[string]any{"type": "integer", "description": "from 1 on"}}),
			})},
		}),
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := config.JSONSchema(documented{}, "socke"); err == nil {
		t.Error("a key that does not exist was left out")
	}
}
