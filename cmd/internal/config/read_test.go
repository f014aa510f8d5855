package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

func TestReadAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	for what, test := range map[string]struct {
		text    string
		window  uint16
		problem string // empty for none
	}{
		"a value":                        {"stream: {window: 7}\n", 7, ""},
		"the section of another program": {"stream: {window: 7}\nothers: {listen: a}\n", 0, "others: unknown key"},
		"a misspelt key":                 {"stream: {windw: 7}\n", 0, "did you mean stream.window?"},
		"a misspelt section":             {"strem: {window: 7}\n", 0, "strem: unknown key, did you mean stream?"},
		"an unknown section":             {"entirely-unknown: {}\n", 0, "principal --help lists all"},
		"a value that is none":           {"stream: {window: many}\n", 0, "stream.window"},
		"two documents":                  {"stream: {window: 7}\n---\nstream: {}\n", 0, "principal-config: " + path + " holds more than one"},
		"a required setting that the environment gives": {"{}", defaults().Stream.Window, ""},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.Read(config.File{Program: "principal", Flag: "principal-config", Path: path}, defaults())
		switch {
		case test.problem == "" && (err != nil || got.Stream.Window != test.window):
			t.Errorf("%s: window %d, %v, want %d", what, got.Stream.Window, err, test.window)
		case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
			t.Errorf("%s: %v, want %q", what, err, test.problem)
		}
	}
}

// Who reads a file that is not there learns which flag named it.
func TestReadNamesTheFlag(t *testing.T) {
	_, err := config.Read(config.File{Program: "agent", Flag: "agent-config", Path: "/does/not/exist"}, defaults())
	if want := "agent-config: read /does/not/exist: no such file or directory: name a readable YAML file (flag --agent-config)"; err == nil || err.Error() != want {
		t.Errorf("Read() = %v, want %s", err, want)
	}
}

// switchOrWord is a setting that was a switch once, and has a word more.
type switchOrWord string

func (switchOrWord) Words() []string { return []string{"true", "false", "masked"} }

func (s *switchOrWord) UnmarshalText(text []byte) error {
	*s = switchOrWord(text)
	return nil
}

// A setting of words that true and false are among takes them as YAML has them, and as text.
func TestSwitchesWithWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	type settings struct {
		Shown switchOrWord `koanf:"shown" help:"what is shown"`
	}
	for text, want := range map[string]switchOrWord{"true": "true", "false": "false", "masked": "masked", `"true"`: "true"} {
		if err := os.WriteFile(path, []byte("shown: "+text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.Read(config.File{Program: "agent", Flag: "config", Path: path}, settings{})
		if err != nil || got.Shown != want {
			t.Errorf("%s is read as %q, %v", text, got.Shown, err)
		}
	}
	schema, err := config.JSONSchema(settings{})
	if err != nil {
		t.Fatal(err)
	}
	shown := schema["properties"].(map[string]any)["shown"].(map[string]any)
	if got := fmt.Sprint(shown["enum"]); got != "[true false masked]" || shown["type"] != nil {
		t.Errorf("its schema is %v", shown)
	}
}
