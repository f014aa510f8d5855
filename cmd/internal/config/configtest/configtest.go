// Package configtest holds files that are made from the code against the code: a test
// is their generator, since nothing else can import the package main they describe.
//
//	configtest.Golden(t, *update, "../../docs/reference/principal.md", text)
package configtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Golden fails when the file is not want, or with update writes it.
func Golden(t testing.TB, update bool, file string, want []byte) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run: make generate", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code says; run: make generate", file)
	}
}

// GoldenProperty is Golden for one property of the JSON schema in a file, whose others
// are written by hand.
func GoldenProperty(t testing.TB, update bool, file, property string, want map[string]any) {
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
	properties[property] = want
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	Golden(t, update, file, out.Bytes())
}
