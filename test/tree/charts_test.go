package tree

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^TestChartReferenceGolden$" -update .

// The reference of each chart is made from the comments in its values.yaml.
func TestChartReferenceGolden(t *testing.T) {
	const config = "`config` is the program's own configuration: [%[1]s](%[1]s.md) has every key of it."
	for _, chart := range []struct{ name, short, about string }{
		{"argomesh-principal", "principal", fmt.Sprintf(config, "principal")},
		{"argomesh-agent", "agent", fmt.Sprintf(config, "agent")},
		{"argomesh-spire", "spire", "`agentctl hub install --with spire` installs it, and with it the definitions of spire-controller-manager."},
	} {
		var document yaml.Node
		if err := yaml.Unmarshal(read(t, "charts/"+chart.name+"/values.yaml"), &document); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		fmt.Fprintf(&out, "# Chart %s\n\nMade from `charts/%[1]s/values.yaml` by `make generate`. [install](../install.md) shows whole installations.\n\n"+
			"%s\n\n| Value | Default | Meaning |\n|---|---|---|\n", chart.name, chart.about)
		for _, v := range chartValues(t, document.Content[0], "", "") {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", v.key, v.value, strings.ReplaceAll(v.about, "|", `\|`))
		}
		golden.Compare(t, filepath.Join(root, "docs", "reference", "chart-"+chart.short+".md"), out.String())
	}
}

// chartValue is one value that a person sets.
type chartValue struct{ key, value, about string }

// chartValues returns those below a mapping. What stands on one line in the file, such as
// {cpu: 10m}, is one value.
func chartValues(t *testing.T, node *yaml.Node, prefix, inherited string) []chartValue {
	t.Helper()
	var out []chartValue
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		about := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", " ")), " ")
		name := prefix + key.Value
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0 && name != "config" {
			out = append(out, chartValues(t, value, name+".", about)...)
			continue
		}
		if i == 0 && about == "" {
			about = inherited
		}
		var content any
		if err := value.Decode(&content); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, err := json.Marshal(content)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := "`" + string(raw) + "`"
		if name == "config" || slices.Contains([]string{"null", `""`, "{}", "[]"}, string(raw)) {
			text = ""
		}
		out = append(out, chartValue{name, text, about})
	}
	return out
}
