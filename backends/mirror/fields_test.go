package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^TestFieldsGolden$" -update .

// TestFieldsGolden holds the table of the documentation against the decisions. That they
// are complete, and true, is for test/argocd.
func TestFieldsGolden(t *testing.T) {
	var b strings.Builder
	for _, kind := range []stream.Kind{stream.AppProject, stream.Application} {
		fmt.Fprintf(&b, "\n| `spec` of an %s | On a managed spoke | On the hub, of an autonomous agent | |\n|---|---|---|---|\n", kind)
		for _, f := range appspec.Fields(kind) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", fieldText(f), f.Spoke, f.Hub, f.Why)
		}
		b.WriteString("\n")
	}
	golden.CompareSection(t, "../../docs/kinds.md", "fields", b.String())
}

// fieldText names fields as they are in a source, of which others are made too.
func fieldText(f appspec.Field) string {
	var in []string
	for _, path := range f.In {
		source := strings.HasPrefix(path, "sources[]") || strings.HasPrefix(path, "sourceHydrator.drySource.")
		if path != "" && !source {
			in = append(in, "`"+path+"`")
		}
	}
	names := "`" + strings.Join(f.Names, "`, `") + "`"
	if len(in) == 0 {
		return names
	}
	return strings.Join(in, ", ") + ": " + names
}
