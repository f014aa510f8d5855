package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// The settings are also read when the link looks at all that there is for another reason, as
// when a definition has changed: what they forbid is forbidden from then on.
func TestGlobalProjectsThatAreReadBesides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := func(globals string) m { return m{"data": m{"globalProjects": globals}} }
		told := true
		o := options{hub: allKinds, spoke: allKinds}
		var hub *memory.Store
		o.before = func(store, _ *memory.Store) { hub = store }
		o.subscribe = func(changed func(stream.ResourceKey)) func() {
			return hub.Subscribe(func(key stream.ResourceKey) {
				if told || key.Kind != stream.ConfigMap {
					changed(key)
				}
			})
		}
		r := newPair(t, o)
		r.connect()
		r.put(r.hub, stream.ConfigMap, "argocd-cm", nil, settings("- projectName: restrained\n"))
		r.put(r.hub, stream.AppProject, "restrained", nil, m{"spec": m{"clusterResourceBlacklist": []any{m{"group": "*", "kind": "*"}}}})
		project := m{"spec": m{"sourceNamespaces": []any{"edge-1"}, "destinations": []any{m{"name": "*", "namespace": "*"}}}}
		r.put(r.hub, stream.AppProject, "web", nil, project)
		pass(time.Second)
		key := stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}
		forbids := func() bool {
			o, _ := r.spoke.store.Get(key)
			return at(parse(t, o), "spec", "clusterResourceBlacklist") != nil
		}
		if !forbids() {
			t.Fatal("the spoke's project does not forbid what the global one does")
		}
		told = false // its watch is behind that of the definition
		r.put(r.hub, stream.ConfigMap, "argocd-cm", nil, settings("{"))
		r.hub.store.SetSchema(stream.Application, knowing(t, newApplication...))
		pass(time.Minute)
		if !forbids() {
			t.Error("it does not any more since the settings cannot be read")
		}
	})
}

// While a hub cannot tell its global projects, what hangs on them stays as it is on the
// spoke, also with a principal that never could; and people learn why.
func TestGlobalProjectsThatCannotBeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const broken = "{"
		settings := func(globals string) m { return m{"data": m{"globalProjects": globals}} }
		admitting := func(r *pair) {
			// web admits the agent by its global project alone.
			r.put(r.hub, stream.AppProject, "open", nil, m{"spec": m{
				"sourceNamespaces": []any{"nobody"}, "destinations": []any{m{"name": "*", "namespace": "*"}},
			}})
			r.put(r.hub, stream.AppProject, "web", nil, m{"spec": m{"sourceNamespaces": []any{"edge-1"}}})
		}
		has := func(when string, r *pair, want bool) {
			t.Helper()
			pass(time.Second)
			_, project := r.spoke.store.Get(stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"})
			if _, secret := r.spoke.store.Get(stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "a"}); project != want || secret != want {
				t.Errorf("%s: the spoke has the project: %t, its Secret: %t; want %t", when, project, secret, want)
			}
		}
		first := newPair(t, options{hub: allKinds, spoke: allKinds})
		admitting(first)
		first.secret("a", "repository", "web", "https://git.test/a")
		cut, _ := first.connect()
		has("without settings", first, false)
		first.put(first.hub, stream.ConfigMap, "argocd-cm", nil, settings("- projectName: open\n"))
		has("with them", first, true)
		first.put(first.hub, stream.ConfigMap, "argocd-cm", nil, settings(broken))
		first.put(first.hub, stream.AppProject, "web", nil, m{"spec": m{"sourceNamespaces": []any{"edge-1"}, "description": "x"}})
		pass(10 * time.Minute)
		has("with settings that cannot be read", first, true)
		told := first.stats(first.hub).Parked[stream.EntryKey{Collection: stream.Trust, Name: "argocd-cm"}]
		if told.Kind != stream.RefusalInvalid || !strings.HasPrefix(told.Message, "globalProjects of ConfigMap argocd-cm cannot be read: ") {
			t.Errorf("parked is %+v", told)
		}
		cut()

		second := newPair(t, options{stores: [2]*memory.Store{first.hub.store.Open(), first.spoke.store.Open()}})
		second.connect()
		pass(10 * time.Minute)
		has("after a restart", second, true)
		second.put(second.hub, stream.ConfigMap, "argocd-cm", nil, settings(""))
		has("with settings that name none", second, false)
		if parked := second.stats(second.hub).Parked; len(parked) > 0 {
			t.Errorf("parked are %v", parked)
		}
	})
}
