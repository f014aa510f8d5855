package main

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/identities"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

var (
	hubTD       = spiffeid.RequireTrustDomainFromString("hub.test")
	edgeTD      = spiffeid.RequireTrustDomainFromString("edge.test")
	edge1ID     = spiffeid.RequireFromString("spiffe://edge.test/argomesh/agent/edge-1")
	principalID = spiffeid.RequireFromString("spiffe://hub.test/argomesh/principal")
)

// workloadAPIOf runs a Workload API of td with these entries, and returns its address.
func workloadAPIOf(t *testing.T, td spiffeid.TrustDomain, entries ...devworkload.Entry) (*devworkload.Server, string) {
	t.Helper()
	return spiffekit.Serve(t, devworkload.Config{TrustDomain: td, Entries: entries, X509TTL: time.Hour})
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
	var fromJSON, fromYAML identities.Report
	if err := json.Unmarshal([]byte(show("-o", "json", "--audience", "x")), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(show("-o", "yaml", "--audience", "x")), &fromYAML); err != nil {
		t.Fatal(err)
	}
	for _, s := range []identities.Report{fromJSON, fromYAML} {
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
		"and have our entry federate with it (agentctl identity register --federates-with hub.test)\n" + count; !errors.Is(err, identities.ErrUnwell) || out != want {
		t.Errorf("doctor of a foreign principal: %v, %q", err, out)
	}
	if out, err := doctor("--principal-id", principalID.String(), "-o", "wide"); !errors.Is(err, identities.ErrUnwell) || !strings.Contains(out, used) || strings.Contains(out, count) {
		t.Errorf("doctor -o wide of a foreign principal: %v, %q", err, out)
	}
	out, err = doctor("--trusts", "hub.test", "-o", "json")
	var report struct{ Findings []inspect.Finding }
	if json.Unmarshal([]byte(out), &report) != nil || !errors.Is(err, identities.ErrUnwell) || inspect.Worst(report.Findings) != inspect.Problem {
		t.Errorf("doctor -o json: %v, %s", err, out)
	}
	if err := api.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	out, err = doctor()
	if !errors.Is(err, identities.ErrUnwell) || !strings.HasPrefix(out, "problem: workload api ") || !strings.Contains(out, "register this process with SPIRE") || strings.Count(out, "\n") != 1 {
		t.Errorf("doctor without identity: %v, %q", err, out)
	}
	if err := api.SetEntries([]devworkload.Entry{{ID: edge1ID}}); err != nil {
		t.Fatal(err)
	}
	out, err = doctor("--hub")
	if err == nil || !strings.Contains(err.Error(), "no kubeconfig") || !strings.HasPrefix(out, used) {
		t.Errorf("doctor without the hub: %v, %q", err, out)
	}
	if _, err := doctor("--spiffe-id", "x"); err == nil || errors.Is(err, identities.ErrUnwell) || !strings.Contains(err.Error(), "--spiffe-id") {
		t.Errorf("doctor of a wrong flag: %v", err)
	}
}
