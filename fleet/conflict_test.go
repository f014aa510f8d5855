package fleet_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

// owned is the result of OwnersOfIDs in text.
type owned struct {
	ByID      map[string]string
	Conflicts map[string][]string
}

func owners(agents []v1alpha1.Agent) owned {
	byID, conflicts := fleet.OwnersOfIDs(agents)
	out := owned{ByID: map[string]string{}, Conflicts: map[string][]string{}}
	for id, name := range byID {
		out.ByID[id.Path()] = name.String()
	}
	for name, list := range conflicts {
		for _, c := range list {
			out.Conflicts[name.String()] = append(out.Conflicts[name.String()], c.ID.Path()+" is "+c.Owner.String()+"'s")
		}
	}
	return out
}

// agent returns an Agent created that many seconds after an arbitrary start, with
// SPIFFE IDs of these paths.
func agent(name string, created int64, paths ...string) v1alpha1.Agent {
	a := v1alpha1.Agent{}
	a.Name = name
	a.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000+created, 0))
	for _, p := range paths {
		a.Spec.Identity.SPIFFEIDs = append(a.Spec.Identity.SPIFFEIDs, "spiffe://example.org"+p)
	}
	return a
}

func TestOwners(t *testing.T) {
	leaving := agent("leaving", 0, "/a")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_500, 0)}
	leaving.Spec.Suspended = true
	tests := map[string]struct {
		agents []v1alpha1.Agent
		want   owned
	}{
		"nobody": {
			want: owned{ByID: map[string]string{}, Conflicts: map[string][]string{}},
		},
		"every ID has one agent": {
			agents: []v1alpha1.Agent{agent("one", 0, "/a", "/b"), agent("two", 1, "/c")},
			want: owned{
				ByID:      map[string]string{"/a": "one", "/b": "one", "/c": "two"},
				Conflicts: map[string][]string{},
			},
		},
		"an ID stays with the older agent, whatever the order and the names": {
			agents: []v1alpha1.Agent{agent("a-newer", 1, "/a", "/own", "/b"), agent("b-older", 0, "/b", "/a")},
			want: owned{
				ByID:      map[string]string{"/a": "b-older", "/b": "b-older", "/own": "a-newer"},
				Conflicts: map[string][]string{"a-newer": {"/a is b-older's", "/b is b-older's"}},
			},
		},
		"of the same second the first by name has it": {
			agents: []v1alpha1.Agent{agent("two", 0, "/a"), agent("three", 0, "/a"), agent("one", 0, "/a")},
			want: owned{
				ByID:      map[string]string{"/a": "one"},
				Conflicts: map[string][]string{"three": {"/a is one's"}, "two": {"/a is one's"}},
			},
		},
		"a suspended and deleting agent keeps its ID": {
			agents: []v1alpha1.Agent{agent("next", 1, "/a"), leaving},
			want: owned{
				ByID:      map[string]string{"/a": "leaving"},
				Conflicts: map[string][]string{"next": {"/a is leaving's"}},
			},
		},
		"what does not parse owns nothing": {
			agents: []v1alpha1.Agent{agent("Bad_Name", 0, "/a"), agent("good", 1, "/a", "/spire/agent", "/..")},
			want: owned{
				ByID:      map[string]string{"/a": "good"},
				Conflicts: map[string][]string{},
			},
		},
		"an ID named twice by one agent is no conflict": {
			agents: []v1alpha1.Agent{agent("one", 0, "/a", "/a")},
			want: owned{
				ByID:      map[string]string{"/a": "one"},
				Conflicts: map[string][]string{},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, owners(tt.agents)); diff != "" {
				t.Errorf("Owners() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOwnersTellsTrustDomainsApart(t *testing.T) {
	a, b := agent("one", 0), agent("two", 1)
	a.Spec.Identity.SPIFFEIDs = []string{"spiffe://a.example/x"}
	b.Spec.Identity.SPIFFEIDs = []string{"spiffe://b.example/x"}
	byID, conflicts := fleet.OwnersOfIDs([]v1alpha1.Agent{a, b})
	if len(byID) != 2 || len(conflicts) != 0 {
		t.Errorf("Owners() = %v, %v; want two owners and no conflict", byID, conflicts)
	}
}

// TestOwnersOfPart holds the promise that an ID's owner depends only on the
// Agents that name it, on which the controller relies.
func TestOwnersOfPart(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/a", "/b", "/c", "/d"}
	for range 200 {
		var agents []v1alpha1.Agent
		for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
			var has []string
			for _, p := range paths {
				if rnd.IntN(2) == 0 {
					has = append(has, p)
				}
			}
			agents = append(agents, agent(name, rnd.Int64N(3), has...))
		}
		all, _ := fleet.OwnersOfIDs(agents)
		for _, p := range paths {
			id := spiffeid.RequireFromString("spiffe://example.org" + p)
			var naming []v1alpha1.Agent
			for _, a := range agents {
				for _, text := range a.Spec.Identity.SPIFFEIDs {
					if text == id.String() {
						naming = append(naming, a)
					}
				}
			}
			part, _ := fleet.OwnersOfIDs(naming)
			if got, want := part[id], all[id]; got != want {
				t.Fatalf("%s belongs to %v among all and to %v among those that name it: %v", p, want, got, agents)
			}
		}
	}
}
