package spire_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

func TestEntryIDAndOwner(t *testing.T) {
	id := spire.EntryID(edge, edgeID, node)
	// Fixed: another ID for the same would make the entries of an older release strangers.
	if want := "argomesh.edge-1.6217f630768dec20"; id != want {
		t.Errorf("EntryID() = %s, want %s", id, want)
	}
	if owner, ours := spire.Owner(id); !ours || owner != edge {
		t.Errorf("Owner(%s) = %v, %t", id, owner, ours)
	}
	for _, id := range []string{
		"", "argomesh", "argomesh.", "argomesh.edge-1", "argomesh.edge-1.", "argomesh.edge-1.ff8ad86d1dfc1a8", "argomesh.edge-1.FF8AD86D1DFC1A8E",
		"argomesh.edge-1.ff8ad86d1dfc1a8e.x", "argomesh..ff8ad86d1dfc1a8e", "argomesh.Edge.ff8ad86d1dfc1a8e", "xargomesh.edge-1.ff8ad86d1dfc1a8e",
		"0001-uuid", "cluster-a.argomesh.edge-1.ff8ad86d1dfc1a8e", "argomesh.7a3c2f10-0000-4000-8000-000000000001",
	} {
		if owner, ours := spire.Owner(id); ours {
			t.Errorf("Owner(%q) = %s", id, owner)
		}
	}
	seen := map[string]bool{}
	for _, id := range []string{
		spire.EntryID(edge, edgeID, node), spire.EntryID(edge, edgeID, alias), spire.EntryID(edge, newID, node), spire.EntryID(edge2, edgeID, node),
		spire.EntryID(edge, edgeID, spiffeid.ID{}),
	} {
		if seen[id] {
			t.Errorf("%s is made twice", id)
		}
		seen[id] = true
	}
}

func TestManagers(t *testing.T) {
	id := spire.EntryID(edge, edgeID, node)
	pod := spiretest.Selectors(t, "k8s:ns:x", "k8s:pod-uid:1234")
	tests := map[string]struct {
		entries         []spire.Entry
		present, delete bool
	}{
		"nobody":                        {},
		"somebody's entries":            {entries: []spire.Entry{{ID: "0001", Selectors: spiretest.Selectors(t, "k8s:ns:x")}}},
		"without prefix":                {entries: []spire.Entry{{ID: "0001", Selectors: pod}}, present: true, delete: true},
		"with the name of its cluster":  {entries: []spire.Entry{{ID: "edge.0001", Selectors: pod}}, present: true},
		"with a prefix that is ours":    {entries: []spire.Entry{{ID: "argomesh.0001", Selectors: pod}}, present: true, delete: true},
		"with a prefix that holds ours": {entries: []spire.Entry{{ID: "argomesh.edge-1.0001", Selectors: pod}}, present: true, delete: true},
		"with one that begins alike":    {entries: []spire.Entry{{ID: "argo.0001", Selectors: pod}}, present: true},
		"two of them":                   {entries: []spire.Entry{{ID: "a.0001", Selectors: pod}, {ID: "0001", Selectors: pod}}, present: true, delete: true},
		"ours that looks like one":      {entries: []spire.Entry{{ID: id, Selectors: pod}}},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			var m spire.Managers
			for _, e := range tt.entries {
				m.Add(e)
			}
			if m.Present() != tt.present || m.Deletes(id) != tt.delete {
				t.Errorf("Present() = %t, Deletes() = %t", m.Present(), m.Deletes(id))
			}
		})
	}
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*spire.Registration)
		want   string
	}{
		"no name":             {func(r *spire.Registration) { r.Name = spiretest.Name("x"); r.Name = spire.Registration{}.Name }, "no name"},
		"no id":               {func(r *spire.Registration) { r.IDs = nil }, "no SPIFFE ID"},
		"no parent":           {func(r *spire.Registration) { r.ParentIDs = nil }, "no parent"},
		"no selectors":        {func(r *spire.Registration) { r.Selectors = nil }, "no selectors"},
		"reserved id":         {func(r *spire.Registration) { r.IDs[0] = node }, "reserved"},
		"foreign parent":      {func(r *spire.Registration) { r.ParentIDs[0] = spiffeid.RequireFromString("spiffe://other.test/n") }, "another trust domain"},
		"parent without path": {func(r *spire.Registration) { r.ParentIDs[0] = own.ID() }, "parent_id is missing"},
		"two trust domains": {func(r *spire.Registration) {
			r.IDs = append(r.IDs, spiffeid.RequireFromString("spiffe://other.test/w"))
		}, "register them apart"},
		"one hint for two":          {func(r *spire.Registration) { r.IDs, r.Hint = append(r.IDs, newID), "x" }, "only the oldest"},
		"hint too long":             {func(r *spire.Registration) { r.Hint = strings.Repeat("é", 1025) }, "1024"},
		"a life of half a second":   {func(r *spire.Registration) { r.X509TTL = 500 * time.Millisecond }, "x509_svid_ttl"},
		"a negative life":           {func(r *spire.Registration) { r.JWTTTL = -time.Second }, "jwt_svid_ttl"},
		"a life of 100 years":       {func(r *spire.Registration) { r.JWTTTL = 100 * 365 * 24 * time.Hour }, "jwt_svid_ttl"},
		"federates with itself":     {func(r *spire.Registration) { r.FederatesWith = []spiffeid.TrustDomain{own} }, "its own trust domain"},
		"dns name with empty label": {func(r *spire.Registration) { r.DNSNames = []string{"a..b"} }, "empty label"},
		"dns name with late star":   {func(r *spire.Registration) { r.DNSNames = []string{"a.*.b"} }, "wildcard"},
		"dns name with a blank":     {func(r *spire.Registration) { r.DNSNames = []string{"a b"} }, "ASCII"},
		"pods without namespace":    {func(r *spire.Registration) { r.Pods.ServiceAccount = "x" }, "no namespace"},
		"a selector without value":  {func(r *spire.Registration) { r.Selectors = []spire.Selector{{Type: "k8s"}} }, "selector"},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			_, err := spiretest.Registration(tt.change).Entries()
			if !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Entries() = %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := spiretest.Registration(func(r *spire.Registration) { r.Hint, r.DNSNames = strings.Repeat("é", 1024), []string{"*.a"} }).Entries(); err != nil {
		t.Errorf("at the limits: %v", err)
	}
}

func TestPlanEntriesOrder(t *testing.T) {
	have := spiretest.Entries(t, spiretest.Registration(nil))
	want := spiretest.Entries(t, spiretest.Registration(func(r *spire.Registration) { r.ParentIDs = []spiffeid.ID{alias} }))
	var got []string
	for _, c := range spire.PlanEntries(edge, want, have) {
		got = append(got, c.Action.Participle())
	}
	if diff := cmp.Diff([]string{"created", "deleted"}, got); diff != "" {
		t.Errorf("a new one comes before the old one goes (-want +got):\n%s", diff)
	}
	if !diff.IsNoOp(spire.PlanEntries(edge, have, have)) || diff.IsNoOp(spire.PlanEntries(edge, want, have)) {
		t.Error("Settled() is wrong")
	}
	// The registration of another name keeps what is its own.
	if plan := spire.PlanEntries(edge2, nil, have); len(plan) != 0 {
		t.Errorf("PlanEntries() of another name = %v", plan)
	}
	second := spiretest.Entries(t, spiretest.Registration(func(r *spire.Registration) { r.Name = edge2 }))
	second[0].X509TTL = time.Hour
	plan := spire.PlanEntries(edge2, second, have)
	if len(plan) != 1 || plan[0].Action != diff.Refuse || !strings.Contains(plan[0].Reason, "registration edge-1") {
		t.Errorf("PlanEntries() of the same workload under another name = %v", plan)
	}
}

func TestParseSelector(t *testing.T) {
	for text, want := range map[string]spire.Selector{
		"k8s:ns:argocd": {Type: "k8s", Value: "ns:argocd"},
		"unix:uid:0":    {Type: "unix", Value: "uid:0"},
		"a:b":           {Type: "a", Value: "b"},
		"a::":           {Type: "a", Value: ":"},
	} {
		if got, err := spire.ParseSelector(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseSelector(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", ":a", "a:", ":"} {
		if got, err := spire.ParseSelector(text); !errors.Is(err, spire.ErrInvalid) {
			t.Errorf("ParseSelector(%q) = %v, %v", text, got, err)
		}
	}
}
