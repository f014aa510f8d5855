package agentconfig

import (
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^TestReferenceGolden$" -update .

// The reference and the schema of the chart's values are made from the code.
func TestReferenceGolden(t *testing.T) {
	text, err := config.Reference(config.Program{Name: "agent"}, Default())
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../../docs/reference/agent.md", text)

	schema, err := config.JSONSchema(Default(), "namespace", "identity.socket") // the chart sets them
	if err != nil {
		t.Fatal(err)
	}
	golden.CompareProperty(t, "../../../charts/argomesh-agent/values.schema.json", "config", schema)
}
