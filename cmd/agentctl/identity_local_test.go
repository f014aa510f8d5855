package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/inspect"
)

var (
	hubTD       = spiffeid.RequireTrustDomainFromString("hub.test")
	edgeTD      = spiffeid.RequireTrustDomainFromString("edge.test")
	edge1ID     = spiffeid.RequireFromString("spiffe://edge.test/argomesh/agent/edge-1")
	principalID = spiffeid.RequireFromString("spiffe://hub.test/argomesh/principal")
)

// runUntilEnd runs something until the test ends.
func runUntilEnd(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

// workloadAPIOf runs a Workload API of td with these entries, and returns its address.
func workloadAPIOf(t *testing.T, td spiffeid.TrustDomain, entries ...devworkload.Entry) (*devworkload.Server, string) {
	t.Helper()
	s, err := devworkload.New(devworkload.Config{TrustDomain: td, Entries: entries, X509TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := devworkload.Listen(t.Context(), path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, func(ctx context.Context) error { return s.Run(ctx, l) })
	return s, "unix://" + path
}

// lifetimes are what differs from run to run.
var lifetimes = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+s\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[0-9a-f]{32}`)

func TestShow(t *testing.T) {
	partner, err := devworkload.New(devworkload.Config{TrustDomain: hubTD})
	if err != nil {
		t.Fatal(err)
	}
	api, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: edge1ID, Hint: "stream", DNSNames: []string{"a.test", "b.test"}})
	if err := api.SetFederated(partner.Bundle()); err != nil {
		t.Fatal(err)
	}
	show := func(args ...string) string {
		t.Helper()
		out, note, err := agentctl(t, append([]string{"identity", "show", "--socket", socket}, args...)...)
		if err != nil || note != "" {
			t.Fatalf("show %v: %v, %q", args, err, note)
		}
		for _, secret := range []string{"PRIVATE KEY", "eyJ"} { // a token begins so
			if strings.Contains(out, secret) {
				t.Errorf("show %v prints a secret:\n%s", args, out)
			}
		}
		return out
	}
	// Without the columns' width, which follows the lifetimes.
	plain := func(s string) string {
		lines := strings.Split(lifetimes.ReplaceAllString(s, "T"), "\n")
		for i := range lines {
			lines[i] = strings.Join(regexp.MustCompile(` {3,}`).Split(lines[i], -1), " | ")
		}
		return strings.Join(lines, "\n")
	}
	want := `SVID | HINT | VALID FOR
spiffe://edge.test/argomesh/agent/edge-1 | stream | T

TRUST DOMAIN | KIND | ROOTS | JWT KEYS
edge.test | own | 1 | 1
hub.test | federated | 1 | 1

JWT-SVID | HINT | AUDIENCE | VALID FOR
spiffe://edge.test/argomesh/agent/edge-1 | stream | x | T
`
	if diff := cmp.Diff(want, plain(show("--audience", "x"))); diff != "" {
		t.Errorf("show (-want +got):\n%s", diff)
	}
	wide := plain(show("-o", "wide"))
	for _, part := range []string{"| ECDSA P-256 | 1 | a.test,b.test |", "edge.test | own | 1 | 1 | T | T"} {
		if !strings.Contains(wide, part) {
			t.Errorf("wide output lacks %q:\n%s", part, wide)
		}
	}
	var fromJSON, fromYAML sight
	if err := json.Unmarshal([]byte(show("-o", "json", "--audience", "x")), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(show("-o", "yaml", "--audience", "x")), &fromYAML); err != nil {
		t.Fatal(err)
	}
	for _, s := range []sight{fromJSON, fromYAML} {
		if len(s.SVIDs) != 1 || s.SVIDs[0].Hint != "stream" || len(s.Bundles) != 2 || len(s.JWTSVIDs) != 1 || s.Socket != socket {
			t.Errorf("for a program: %+v", s)
		}
	}
}

func TestDoctor(t *testing.T) {
	api, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: edge1ID})
	doctor := func(args ...string) (string, error) {
		t.Helper()
		out, _, err := agentctl(t, append([]string{"identity", "doctor", "--socket", socket}, args...)...)
		return out, err
	}
	// When nothing is wrong it says what it looked at.
	const used, count = "ok: spiffe://edge.test/argomesh/agent/edge-1 is the SVID that is used\n", "2 things are as they should be; -o wide lists them.\n"
	for _, args := range [][]string{nil, {"-o", "wide"}} {
		if out, err := doctor(args...); err != nil || !strings.HasPrefix(out, used) || !strings.Contains(out, "is valid for") || strings.Count(out, "\n") != 2 {
			t.Errorf("doctor %s: %v, %q", args, err, out)
		}
	}
	out, err := doctor("--principal-id", principalID.String())
	if want := "problem: hub.test is not trusted: the Workload API hands out no bundle of it; cure: federate the SPIRE server with it (agentctl identity federate hub.test), " +
		"and have our entry federate with it (agentctl identity register --federates-with hub.test)\n" + count; !errors.Is(err, errUnwell) || out != want {
		t.Errorf("doctor of a foreign principal: %v, %q", err, out)
	}
	if out, err := doctor("--principal-id", principalID.String(), "-o", "wide"); !errors.Is(err, errUnwell) || !strings.Contains(out, used) || strings.Contains(out, count) {
		t.Errorf("doctor -o wide of a foreign principal: %v, %q", err, out)
	}
	out, err = doctor("--trusts", "hub.test", "-o", "json")
	var report struct{ Findings []inspect.Finding }
	if json.Unmarshal([]byte(out), &report) != nil || !errors.Is(err, errUnwell) || inspect.Worst(report.Findings) != inspect.Problem {
		t.Errorf("doctor -o json: %v, %s", err, out)
	}
	if err := api.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	out, err = doctor()
	if !errors.Is(err, errUnwell) || !strings.HasPrefix(out, "problem: workload api ") || !strings.Contains(out, "register this process with SPIRE") || strings.Count(out, "\n") != 1 {
		t.Errorf("doctor without identity: %v, %q", err, out)
	}
	if err := api.SetEntries([]devworkload.Entry{{ID: edge1ID}}); err != nil {
		t.Fatal(err)
	}
	out, err = doctor("--hub")
	if err == nil || !strings.Contains(err.Error(), "no kubeconfig") || !strings.HasPrefix(out, used) {
		t.Errorf("doctor without the hub: %v, %q", err, out)
	}
	if _, err := doctor("--spiffe-id", "x"); err == nil || errors.Is(err, errUnwell) || !strings.Contains(err.Error(), "--spiffe-id") {
		t.Errorf("doctor of a wrong flag: %v", err)
	}
}

func TestRegistryJudges(t *testing.T) {
	_, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: edge1ID}, devworkload.Entry{ID: spiffeid.RequireFromString("spiffe://edge.test/other")})
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
	verdicts := judge(agents, offer)
	want := []verdict{
		{SPIFFEID: edge1ID.String(), Agent: "edge-1"},
		{SPIFFEID: "spiffe://edge.test/other", Refused: "spiffe://edge.test/other is not in spec.identity.spiffeIDs of any Agent: identity not accepted"},
	}
	if diff := cmp.Diff(want, verdicts); diff != "" {
		t.Errorf("judge() (-want +got):\n%s", diff)
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
	if v := judge(agents, offer)[0]; v.Agent != "" || !strings.Contains(v.Refused, "suspended") {
		t.Errorf("a suspended agent: %+v", v)
	}
}
