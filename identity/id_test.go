package identity_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/heap"
)

func TestParseID(t *testing.T) {
	longPath := func(total int) string {
		prefix := "spiffe://td.test/"
		return prefix + strings.Repeat("p", total-len(prefix))
	}
	tests := map[string]struct {
		in    string
		valid bool
	}{
		"an agent":                       {"spiffe://td.test/argomesh/agent/edge-1", true},
		"kubernetes convention":          {"spiffe://cluster.local/ns/argocd/sa/argomesh-agent", true},
		"upper case in the path":         {"spiffe://td.test/Principal", true},
		"a path that begins like spire":  {"spiffe://td.test/spirers", true},
		"spire deeper in the path":       {"spiffe://td.test/x/spire", true},
		"2048 bytes":                     {longPath(2048), true},
		"trust domain of 255 bytes":      {"spiffe://" + strings.Repeat("t", 255) + "/x", true},
		"empty":                          {"", false},
		"no scheme":                      {"td.test/x", false},
		"another scheme":                 {"https://td.test/x", false},
		"upper-case scheme":              {"SPIFFE://td.test/x", false},
		"no trust domain":                {"spiffe:///x", false},
		"upper case in the trust domain": {"spiffe://TD.test/x", false},
		"no path":                        {"spiffe://td.test", false},
		"only a slash":                   {"spiffe://td.test/", false},
		"slash at the end":               {"spiffe://td.test/x/", false},
		"an empty segment":               {"spiffe://td.test/a//b", false},
		"a dot segment":                  {"spiffe://td.test/a/./b", false},
		"a dot-dot segment":              {"spiffe://td.test/a/../b", false},
		"percent-encoding":               {"spiffe://td.test/%61", false},
		"a port":                         {"spiffe://td.test:443/x", false},
		"a user":                         {"spiffe://me@td.test/x", false},
		"a query":                        {"spiffe://td.test/x?y", false},
		"a fragment":                     {"spiffe://td.test/x#y", false},
		"a line break":                   {"spiffe://td.test/x\n", false},
		"2049 bytes":                     {longPath(2049), false},
		"trust domain of 256 bytes":      {"spiffe://" + strings.Repeat("t", 256) + "/x", false},
		"reserved path":                  {"spiffe://td.test/spire", false},
		"a spire server":                 {"spiffe://td.test/spire/server", false},
		"a spire agent":                  {"spiffe://td.test/spire/agent/join_token/1", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			id, err := identity.ParseID(tc.in)
			if !tc.valid {
				if !errors.Is(err, identity.ErrInvalid) {
					t.Fatalf("ParseID(%q) = %s, %v, want an error that wraps ErrInvalid", tc.in, id, err)
				}
				if !id.IsZero() {
					t.Errorf("ParseID(%q) = %s beside an error", tc.in, id)
				}
				return
			}
			if err != nil || id.String() != tc.in {
				t.Errorf("ParseID(%q) = %q, %v", tc.in, id, err)
			}
		})
	}
}

func TestAgentID(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("prod.example")
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := identity.AgentID(td, name).String(), "spiffe://prod.example/argomesh/agent/edge-1"; got != want {
		t.Errorf("AgentID() = %s, want %s", got, want)
	}
	if got := identity.AgentID(spiffeid.TrustDomain{}, name); !got.IsZero() {
		t.Errorf("AgentID() without trust domain = %s", got)
	}
	if got := identity.AgentID(td, identity.AgentName{}); !got.IsZero() {
		t.Errorf("AgentID() without name = %s", got)
	}
	for text, want := range map[string]string{
		"spiffe://other.example/argomesh/agent/edge-1": "edge-1", "spiffe://prod.example/argomesh/agent/edge-1/more": "",
		"spiffe://prod.example/argomesh/agent/Edge_1": "", "spiffe://prod.example/edge-1": "", "spiffe://prod.example": "",
	} {
		if got, found := identity.AgentNameIn(spiffeid.RequireFromString(text)); got.String() != want || found != (want != "") {
			t.Errorf("AgentNameIn(%s) = %s, %t, want %q", text, got, found, want)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{
		"spiffe://td.test/argomesh/agent/edge-1", "spiffe://td.test/ns/a/sa/b", "spiffe://td.test", "spiffe://td.test/",
		"spiffe://td.test/spire/server", "spiffe://td.test/a/../b", "spiffe://td.test/argomesh/agent/-", "", "spiffe://",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var id spiffeid.ID
		var err error
		heap.Bound(t, len(s), func() { id, err = identity.ParseID(s) })
		if err != nil {
			if !errors.Is(err, identity.ErrInvalid) || !id.IsZero() {
				t.Fatalf("ParseID(%q) = %s, %v", s, id, err)
			}
			return
		}
		again, err := identity.ParseID(id.String())
		if err != nil || again != id || id.String() != s {
			t.Fatalf("%q prints as %q and parses again as %q, %v", s, id, again, err)
		}
		if err := identity.CheckID(id); err != nil {
			t.Fatalf("CheckID() of what ParseID accepted: %v", err)
		}
		if err := identity.AllowIDs(id)(again); err != nil {
			t.Fatalf("an id is not equal to itself: %v", err)
		}
	})
}
