package chartvalues

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

const principalID = "spiffe://hub.example/argomesh/principal"

func TestFile(t *testing.T) {
	t.Parallel()
	agent := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	agent.Spec.Mode = v1alpha1.ModeManaged
	agent.Spec.Identity.SPIFFEIDs = []string{"spiffe://edge.example/argomesh/agent/edge-1"}
	agent.Spec.Access = &v1alpha1.AgentAccess{Enabled: true}
	if _, err := FileOf(agent, "", principalID); err == nil || !strings.Contains(err.Error(), "--principal and --principal-id are missing") {
		t.Errorf("without an address: %v", err)
	}
	written, err := FileOf(agent, "hub.example:443", principalID)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := written.Write(&out); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "edge-1.yaml")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{name, "-"} {
		got, err := ReadFile(from, bytes.NewReader(out.Bytes()))
		if diff := cmp.Diff(written, got); err != nil || diff != "" {
			t.Errorf("from %s: %v (-written +read):\n%s", from, err, diff)
		}
	}
}

func TestFileIsRefused(t *testing.T) {
	t.Parallel()
	const whole = "kind: SpokeInstall\nname: edge-1\nspiffeIDs: [spiffe://edge.example/a]\nprincipalID: " + principalID +
		"\nvalues: {config: {name: edge-1, mode: managed, principal: {address: a:1, spiffe_ids: [" + principalID + "]}}}\n"
	if _, err := parseFile([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	for cause, content := range map[string]string{
		`of kind ""`:          "name: edge-1\n",
		"unknown field":       whole + "token: x\n",
		"larger than":         whole + "#" + strings.Repeat("x", maxFile),
		"no SPIFFE ID":        strings.Replace(whole, "[spiffe://edge.example/a]", "[]", 1),
		"https://hub.example": strings.Replace(whole, "spiffe://hub.example/argomesh/principal", "https://hub.example", 1),
		"edge_1":              strings.Replace(whole, "name: edge-1", "name: edge_1", 1),
	} {
		if _, err := parseFile([]byte(content)); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("it is refused with %v, want one that says %q", err, cause)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none"), nil); err == nil || !strings.Contains(err.Error(), "--from") {
		t.Errorf("without a file: %v", err)
	}
}
