// Package golden holds files of the tree against what the code makes: examples that are
// read like code, and reference documents and schemas whose only generator is a test.
// With the flag -update it writes them: `make golden` and `make generate` run the tests
// whose names have the word Golden so. It is imported by tests only.
//
//	golden.Compare(t, filepath.Join("testdata", "gateway.out.yaml"), got)
package golden

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files and reference documents as they should be")

// Updating reports whether files are to be written.
func Updating() bool { return *update }

// Compare fails t unless the file is got. With -update it writes the file.
func Compare[T ~string | ~[]byte](t testing.TB, file string, got T) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // a file of the tree
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run: make golden", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nrun: make golden", file, diff)
	}
}

// CompareSection is Compare for what is between two lines of a Markdown file, whose rest is
// written by hand: <!-- name: made from the code --> and <!-- name: end -->.
func CompareSection(t testing.TB, file, name, got string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": made from the code -->\n", "<!-- "+name+": end -->\n"
	before, rest, found := strings.Cut(string(content), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no section %s: the lines %q and %q", file, name, begin, end)
	}
	Compare(t, file, before+begin+got+end+after)
}

// CompareProperty is Compare for one property of the JSON schema in a file, whose others
// are written by hand.
func CompareProperty(t testing.TB, file, property string, got map[string]any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		t.Fatalf("%s has no properties", file)
	}
	properties[property] = got
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	Compare(t, file, out.Bytes())
}
