package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestObjectFormats(t *testing.T) {
	object := func(name string, labels map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent",
			"metadata": map[string]any{"name": name, "labels": labels},
			"spec":     map[string]any{"identity": map[string]any{"spiffeIDs": []any{"spiffe://a/" + name, "spiffe://b/" + name}}},
		}}
	}
	list := ObjectList([]*unstructured.Unstructured{object("edge-1", map[string]any{"env": "prod"}), object("edge-2", nil)})
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for format, want := range map[string]string{
		"name":                               "agent.argomesh.io/edge-1\nagent.argomesh.io/edge-2\n",
		"jsonpath={.items[*].metadata.name}": "edge-1 edge-2",
		"jsonpath-as-json={.items[0].metadata.name}":                                                           "[\n    \"edge-1\"\n]\n",
		"jsonpath-file=" + file("path", "{.items[1].metadata.name}"):                                           "edge-2",
		"go-template={{(index .items 0).metadata.labels.env}}":                                                 "prod",
		"go-template-file=" + file("template", "{{len .items}}"):                                               "2",
		"custom-columns=NAME:.metadata.name,IDS:.spec.identity.spiffeIDs[*]":                                   "NAME     IDS\nedge-1   spiffe://a/edge-1,spiffe://b/edge-1\nedge-2   spiffe://a/edge-2,spiffe://b/edge-2\n",
		"custom-columns=ENV:$.metadata.labels.env":                                                             "ENV\nprod\n<none>\n",
		"custom-columns-file=" + file("columns", "NAME           ENV\nmetadata.name {.metadata.labels.env}\n"): "NAME     ENV\nedge-1   prod\nedge-2   <none>\n",
	} {
		t.Run(format, func(t *testing.T) {
			o := NewOutput(ObjectFormats()...)
			if err := o.Set(format); err != nil {
				t.Fatal(err)
			}
			if o.IsTable() {
				t.Error("it is taken for a table")
			}
			var out strings.Builder
			if err := o.Object(&out, list); err != nil || out.String() != want {
				t.Errorf("Object() prints %q, %v, want %q", out.String(), err, want)
			}
		})
	}
	for format, want := range map[string]string{
		"xml":                        "unknown value",
		"jsonpath":                   "unknown value",
		"jsonpath=":                  "an argument is expected",
		"jsonpath={.a":               "jsonpath: ",
		"go-template={{":             "go-template: ",
		"custom-columns=NAME:.a,:.b": "HEADER:PATH is expected",
		"custom-columns=A:.b[":       "custom-columns: column",
		"custom-columns-file=" + file("one", "NAME\n"):            "two lines are expected",
		"custom-columns-file=" + file("odd", "NAME ENV\n.name\n"): "2 headers have 1 paths",
		"go-template-file=" + filepath.Join(dir, "none"):          "no such file",
	} {
		o := NewOutput(ObjectFormats()...)
		if err := o.Set(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Set(%q) = %v, want %q", format, err, want)
		}
		if o.Value != "" {
			t.Errorf("Set(%q) leaves %q", format, o.Value)
		}
	}
	// Headers are printed once, for what is printed one after the other.
	o := NewOutput(ObjectFormats()...)
	if err := o.Set("custom-columns=NAME:.metadata.name"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i := range list.Items {
		if err := o.Object(&out, &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "NAME\nedge-1\nedge-2\n" {
		t.Errorf("it prints %q", out.String())
	}
}
