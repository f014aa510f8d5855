package check

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// A kubelet has both outputs of a pod in one log, in the order in which it read them.
func TestFindingsInTheLogOfAPod(t *testing.T) {
	want := []Finding{{Level: Problem, Word: "PrincipalUnreachable", Side: Spoke, About: "principal p:1", Says: "is {not} reached", Cure: "Open the way."}}
	var out bytes.Buffer
	if err := printAll(cli.Streams{Out: &out}, &cli.OneOf{Value: "json"}, want); err != nil {
		t.Fatal(err)
	}
	document := strings.SplitAfter(out.String(), "\n")
	const said = "agentctl: there are problems: see above\n"
	for at := range document {
		log := strings.Join(document[:at], "") + said + strings.Join(document[at:], "")
		got := findingsIn([]byte(log))
		if len(got) != 1 || got[0].Word != want[0].Word || got[0].Says != want[0].Says {
			t.Errorf("with the error before line %d of the document: %v, want %v", at, got, want)
		}
	}
	for _, log := range []string{"", said, "{", "no such image\n"} {
		if got := findingsIn([]byte(log)); got != nil {
			t.Errorf("of %q: %v, want nothing", log, got)
		}
	}
}
