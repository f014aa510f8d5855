package golden_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/golden"
)

// recorder is a test that notes what it fails with.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestCompare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("a: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	same, other := &recorder{TB: t}, &recorder{TB: t}
	golden.Compare(same, file, "a: 1\n")
	golden.Compare(other, file, []byte("a: 2\n"))
	if len(same.said) > 0 {
		t.Errorf("the same: %q", same.said)
	}
	if len(other.said) != 1 || !strings.Contains(other.said[0], file) || !strings.Contains(other.said[0], "a: 2") {
		t.Errorf("another: %q", other.said)
	}
}

func TestCompareSection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.md")
	if err := os.WriteFile(file, []byte("by hand\n<!-- a: made from the code -->\n1\n<!-- a: end -->\nby hand\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	same, other := &recorder{TB: t}, &recorder{TB: t}
	golden.CompareSection(same, file, "a", "1\n")
	golden.CompareSection(other, file, "a", "2\n")
	if len(same.said) > 0 || len(other.said) != 1 {
		t.Errorf("the same: %q, another: %q", same.said, other.said)
	}
}

func TestCompareProperty(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte("{\n  \"properties\": {\n    \"a\": {\n      \"type\": \"string\"\n    },\n    \"b\": {}\n  }\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	same, other := &recorder{TB: t}, &recorder{TB: t}
	golden.CompareProperty(same, file, "a", map[string]any{"type": "string"})
	golden.CompareProperty(other, file, "a", map[string]any{"type": "integer"})
	if len(same.said) > 0 || len(other.said) != 1 {
		t.Errorf("the same: %q, another: %q", same.said, other.said)
	}
}
