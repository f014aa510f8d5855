package identities

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

func TestRegistryJudges(t *testing.T) {
	edge1ID := spiffeid.RequireFromString("spiffe://edge.test/argomesh/agent/edge-1")
	_, socket := spiffekit.Serve(t, devworkload.Config{
		TrustDomain: edge1ID.TrustDomain(), X509TTL: time.Hour,
		Entries: []devworkload.Entry{{ID: edge1ID}, {ID: spiffeid.RequireFromString("spiffe://edge.test/other")}},
	})
	offer, err := inspect.Ask(t.Context(), inspect.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	agent := func(name string, created int64, ids ...string) v1alpha1.Agent {
		a := v1alpha1.Agent{Spec: v1alpha1.AgentSpec{Mode: v1alpha1.ModeManaged, Identity: v1alpha1.AgentIdentity{SPIFFEIDs: ids}}}
		a.Name, a.CreationTimestamp = name, metav1.Unix(created, 0)
		return a
	}
	agents := []v1alpha1.Agent{
		agent("edge-1", 1, edge1ID.String()), agent("edge-2", 2, edge1ID.String()), agent("edge-3", 3, "spiffe://far.test/a", "spiffe://far.test/b"), agent("edge-4", 4, "x"),
	}
	verdicts := askRegistry(agents, offer)
	want := []registryAnswer{
		{SPIFFEID: edge1ID.String(), Agent: "edge-1"},
		{SPIFFEID: "spiffe://edge.test/other", Refused: "spiffe://edge.test/other is not in spec.identity.spiffeIDs of any Agent: identity not accepted"},
	}
	if diff := cmp.Diff(want, verdicts); diff != "" {
		t.Errorf("askRegistry() (-want +got):\n%s", diff)
	}
	var got bytes.Buffer
	if err := printFindings(&got, diagnoseRegistry(agents, offer, verdicts, nil), true); err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "doctor_registry.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), got.String()); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	own := diagnoseRegistry(agents[:1], offer, verdicts, []spiffeid.ID{spiffeid.RequireFromString("spiffe://edge.test/other")})
	if worst := inspect.Worst(own); worst != inspect.Fine || len(own) != 2 {
		t.Errorf("of the principal's own identity: %v", own)
	}
	agents[0].Spec.Suspended = true
	if v := askRegistry(agents, offer)[0]; v.Agent != "" || !strings.Contains(v.Refused, "suspended") {
		t.Errorf("a suspended agent: %+v", v)
	}
}
