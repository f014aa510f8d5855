package ownership

import (
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

const inQuery = "https://argocd-agent-resource-proxy:9090?agentName=edge-1"

// TestAliases: what argocd-agent's users write is understood, not sent, and told with
// the patch that mends it.
func TestAliases(t *testing.T) {
	const (
		elsewhere = "the destination is not agent edge-1, to whose namespace the Application belongs; set destination.name to edge-1"
		both      = "the destination names agent edge-1 and a server; it may name only one of the two"
		patch     = `mend it with: kubectl -n edge-1 patch applications.argoproj.io guestbook --type merge -p '{"spec":{"destination":{"name":"edge-1","server":null}}}'`
		query     = "the destination's server names agent edge-1 as argocd-agent does, and Argo CD has no cluster of that URL; "
		hub       = "the destination is the hub's own cluster, which argocd-agent takes for that of agent edge-1; unless an application controller of the hub deploys it there, "
		all       = " (for all of the agent's: agentctl agent rewrite-destinations edge-1 -n argocd)"
		allHub    = " (for all of the agent's: agentctl agent rewrite-destinations edge-1 -n argocd --hub-has-no-controller)"
		set       = "mend it in the template of ApplicationSet sets, with name: edge-1 in place of the server"
	)
	owned := m{"ownerReferences": []any{m{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}, m{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "sets"}}}
	tests := map[string]struct {
		meta, destination          m
		byNamespace, byDestination string
	}{
		"the agent in the server's query":        {nil, m{"server": inQuery, "namespace": "web"}, query + patch + all, query + patch + all},
		"the agent, of an ApplicationSet":        {owned, m{"server": inQuery}, query + set + all, query + set + all},
		"another agent there":                    {nil, m{"server": "https://x:9090?agentName=edge-10"}, elsewhere, both},
		"the hub's own cluster":                  {nil, m{"server": "https://kubernetes.default.svc"}, hub + patch + allHub, both},
		"the same, with a slash":                 {nil, m{"server": "https://kubernetes.default.svc/"}, hub + patch + allHub, both},
		"the same, by its name":                  {nil, m{"name": "in-cluster"}, hub + patch + allHub, both},
		"the hub's own, of an ApplicationSet":    {owned, m{"server": "https://kubernetes.default.svc"}, hub + set + allHub, both},
		"a name beside it":                       {nil, m{"name": "edge-1", "server": inQuery}, elsewhere, both},
		"no destination":                         {nil, m{}, elsewhere, both},
		"the agent":                              {nil, m{"name": "edge-1"}, "", ""},
		"a name of a push cluster":               {nil, m{"name": "production"}, elsewhere, both},
		"another server in the cluster's domain": {nil, m{"server": "https://kubernetes.default.svc.cluster.local"}, elsewhere, both},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "guestbook"}, test.meta, m{"spec": m{"destination": test.destination}})
			for _, by := range []struct {
				destination bool
				want        string
			}{{false, test.byNamespace}, {true, test.byDestination}} {
				r := ruleSet(t, stream.Hub, stream.Managed)
				if r.ByDestination = by.destination; by.destination {
					r.Namespaces = []string{"edge-1"}
				}
				if got := r.Unsendable(o); got != by.want {
					t.Errorf("unsendable, by destination %t:\n%s\nwant\n%s", by.destination, got, by.want)
				}
				if _, sent := r.Content(stream.Applications, o, operations.Requests{}); sent != (by.want == "") {
					t.Errorf("sent, by destination %t: %t", by.destination, sent)
				}
				if r.Runs(mapping.Destination{Seen: o}) != (by.want == "") {
					t.Errorf("it runs on the spoke, by destination %t", by.destination)
				}
			}
		})
	}
}

// TestAliasedOf: agentctl reads the same, and what the principal told.
func TestAliasedOf(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Managed)
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "guestbook"}
	o := objecttest.Object(t, key, nil, m{"spec": m{"destination": m{"server": inQuery}}})
	read := func(o object.Object) mapping.Aliased {
		t.Helper()
		a, ok := mapping.AliasedOf(backends.Object{Key: key, Raw: object.Encode(o.Fields)}, r.Agent)
		if !ok {
			t.Fatal("it is no alias")
		}
		return a
	}
	if got, want := read(o), (mapping.Aliased{Alias: mapping.AliasQuery, Destination: inQuery}); got != want {
		t.Errorf("AliasedOf() = %+v, want %+v", got, want)
	}
	raw, needed := r.PlanHubUpdate(o, LinkState{Now: time.Unix(0, 0)})
	if !needed {
		t.Fatal("nothing is told")
	}
	told, err := object.Parse(backends.Object{Key: key, Raw: raw})
	if err != nil {
		t.Fatal(err)
	}
	if !read(told).Reported {
		t.Errorf("the principal told it: %s", raw)
	}
	message := strings.ReplaceAll(object.StringAt(object.Conditions(told.Child("status"))[0].(map[string]any), "message"), "edge-1", "edge-10")
	object.SetConditions(told.Child("status"), []any{m{"type": object.ErrorCondition, "message": message}})
	if read(told).Reported {
		t.Errorf("what is told of another agent counts: %s", message)
	}
	// The patch is the one that mends it.
	mended := o.Clone()
	destination := mended.Ensure("spec", "destination")
	patch, _ := mapping.DestinationPatch(r.Agent)["spec"].(map[string]any)["destination"].(map[string]any)
	for field, value := range patch {
		if value == nil {
			delete(destination, field)
		} else {
			destination[field] = value
		}
	}
	if why := r.Unsendable(mended); why != "" {
		t.Errorf("after the patch it is not sent: %s", why)
	}
}
