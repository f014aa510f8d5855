package main

import (
	"flag"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/config/configtest"
)

//go:generate go test -count=1 -run "^TestReferenceGolden$" -update .

var update = flag.Bool("update", false, "write the reference and the chart's schema as they should be")

// The reference and the schema of the chart's values are made from the code.
func TestReferenceGolden(t *testing.T) {
	text, err := config.Reference(config.Program{Name: "agent"}, Default())
	if err != nil {
		t.Fatal(err)
	}
	configtest.Golden(t, *update, "../../docs/reference/agent.md", []byte(text))

	schema, err := config.JSONSchema(Default(), "namespace", "identity.socket") // the chart sets them
	if err != nil {
		t.Fatal(err)
	}
	configtest.GoldenProperty(t, *update, "../../charts/argomesh-agent/values.schema.json", "config", schema)
}
