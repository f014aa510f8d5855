package hub_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argomesh/argomesh/fleet/hub"
)

// TestMapping is every case of by what a hub maps when a principal starts, that of a hub
// that is upgraded among them.
func TestMapping(t *testing.T) {
	met := agent(map[string]any{"history": map[string]any{"id": "h"}})
	never := agent(map[string]any{})
	kept := func(mapping string) runtime.Object {
		return configMap(map[string]any{"uid": "u", "default-project": "not-shared", "mapping": mapping})
	}
	older := configMap(map[string]any{"uid": "u"})
	for name, c := range map[string]struct {
		there []runtime.Object
		asked hub.Mapping
		want  hub.Mapping
	}{
		"a new hub":                             {nil, "", hub.ByDestination},
		"a new hub whose owner wants the other": {nil, hub.ByNamespace, hub.ByNamespace},
		"a new hub that is asked for the same":  {nil, hub.ByDestination, hub.ByDestination},
		"an agent that never connected":         {[]runtime.Object{never}, "", hub.ByDestination},
		"an agent that was here":                {[]runtime.Object{met}, "", hub.ByNamespace},
		"that, and a setting":                   {[]runtime.Object{met}, hub.ByDestination, hub.ByDestination},
		"upgraded, without a setting":           {[]runtime.Object{older}, "", hub.ByNamespace},
		"upgraded, by namespace":                {[]runtime.Object{older, met}, hub.ByNamespace, hub.ByNamespace},
		"upgraded, by destination":              {[]runtime.Object{older, met}, hub.ByDestination, hub.ByDestination},
		"kept":                                  {[]runtime.Object{kept("destination")}, "", hub.ByDestination},
		"kept, and agents were here":            {[]runtime.Object{kept("destination"), met}, "", hub.ByDestination},
		"kept, the setting differs":             {[]runtime.Object{kept("destination")}, hub.ByNamespace, hub.ByDestination},
		"kept, the setting differs, other way":  {[]runtime.Object{kept("namespace")}, hub.ByDestination, hub.ByNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			api := client(c.there...)
			expected, err := hub.Store{Client: api, Namespace: "argocd", Mapping: c.asked}.Expect(t.Context())
			if err != nil || expected.Mapping != c.want {
				t.Fatalf("Expect() = %+v, %v, want %s", expected, err, c.want)
			}
			for _, a := range api.Actions() {
				if verb := a.GetVerb(); verb != "get" && verb != "list" {
					t.Errorf("Expect() does %s", verb)
				}
			}
			got, err := hub.Store{Client: api, Namespace: "argocd", Mapping: c.asked}.Ensure(t.Context())
			if err != nil || got.Mapping != c.want {
				t.Fatalf("Keep() = %+v, %v, want %s", got, err, c.want)
			}
			// Whatever the next principal is told, it follows.
			for _, asked := range []hub.Mapping{"", hub.ByNamespace, hub.ByDestination} {
				if again, err := (hub.Store{Client: api, Namespace: "argocd", Mapping: asked}).Ensure(t.Context()); err != nil || again != got {
					t.Errorf("asked for %q the next principal reads %+v, %v", asked, again, err)
				}
			}
		})
	}
}

// TestMappingIsReadBack: what a principal goes by is what the API server has, though another
// one was faster, and a new ConfigMap is made with all of it in one call.
func TestMappingIsReadBack(t *testing.T) {
	t.Run("made by another", func(t *testing.T) {
		api := client()
		api.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return false, nil, api.Tracker().Add(configMap(map[string]any{"uid": "theirs", "default-project": "shared", "mapping": "namespace"}))
		})
		got, err := hub.Store{Client: api, Namespace: "argocd"}.Ensure(t.Context())
		if err != nil || got.UID != "theirs" || got.Mapping != hub.ByNamespace {
			t.Errorf("Keep() = %+v, %v, want what the other one made", got, err)
		}
	})
	t.Run("completed by another", func(t *testing.T) {
		api := client(configMap(map[string]any{"uid": "u"}))
		lost := false
		api.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if lost {
				return false, nil, nil
			}
			lost = true
			return true, nil, errors.Join(
				api.Tracker().Update(configMaps, configMap(map[string]any{"uid": "u", "default-project": "shared", "mapping": "namespace"}), "argocd"),
				errors.New("the object has been modified"))
		})
		store := hub.Store{Client: api, Namespace: "argocd", Mapping: hub.ByDestination}
		if _, err := store.Ensure(t.Context()); err == nil {
			t.Fatal("a write that lost is taken for one that won")
		}
		if got, err := store.Ensure(t.Context()); err != nil || got.Mapping != hub.ByNamespace {
			t.Errorf("Keep() = %+v, %v, want the mapping of who won", got, err)
		}
	})
	t.Run("made in one call", func(t *testing.T) {
		api := client()
		if _, err := (hub.Store{Client: api, Namespace: "argocd"}).Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		var calls []string
		for _, a := range api.Actions() {
			calls = append(calls, a.GetVerb()+" "+a.GetResource().Resource)
		}
		if got := strings.Join(calls, ", "); got != "get configmaps, list agents, create configmaps, get configmaps" {
			t.Errorf("calls: %s", got)
		}
	})
}

// TestSetMapping: who changes the mapping says what he saw.
func TestSetMapping(t *testing.T) {
	for name, c := range map[string]struct {
		kept     string
		from, to hub.Mapping
		want     hub.Mapping
		fails    error
	}{
		"to the other":          {"namespace", hub.ByNamespace, hub.ByDestination, hub.ByDestination, nil},
		"and back":              {"destination", hub.ByDestination, hub.ByNamespace, hub.ByNamespace, nil},
		"somebody was faster":   {"destination", hub.ByNamespace, hub.ByDestination, hub.ByDestination, hub.ErrMapping},
		"nobody has decided it": {"", hub.ByNamespace, hub.ByDestination, hub.ByNamespace, hub.ErrMapping},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string]any{"uid": "u", "default-project": "shared"}
			if c.kept != "" {
				data["mapping"] = c.kept
			}
			store := hub.Store{Client: client(configMap(data)), Namespace: "argocd"}
			if err := store.SetMapping(t.Context(), c.from, c.to); !errors.Is(err, c.fails) {
				t.Errorf("SetMapping() = %v, want %v", err, c.fails)
			}
			got, err := store.Ensure(t.Context())
			if want := (hub.Hub{UID: "u", DefaultProject: hub.Shared, Mapping: c.want}); err != nil || got != want {
				t.Errorf("the hub is %+v, %v, want %+v", got, err, want)
			}
		})
	}
}
