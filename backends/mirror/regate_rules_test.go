package mirror

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/ownership/ownershiptest"
	"github.com/argomesh/argomesh/stream"
)

// TestAllApplicationsAreLookedAtAgain: a project admits something else, and one of its
// Applications changes before the others are looked at again.
func TestAllApplicationsAreLookedAtAgain(t *testing.T) {
	store := memory.New(memory.Config{})
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{
		Rules: ownershiptest.Rules(t, stream.Hub, stream.Managed), Store: store, Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer(""),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(m)
	project := stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: "web"}
	put := func(key stream.ResourceKey, spec map[string]any) {
		t.Helper()
		o := objecttest.Object(t, key, nil, map[string]any{"spec": spec})
		delete(o.Child("metadata"), "uid")
		delete(o.Child("metadata"), "resourceVersion")
		if old, there := store.Get(key); there {
			if _, err := store.Update(t.Context(), old, object.Encode(o.Fields)); err != nil {
				t.Fatal(err)
			}
		} else if _, err := store.Create(t.Context(), key, object.Encode(o.Fields)); err != nil {
			t.Fatal(err)
		}
		l.observe(key)
	}
	var apps []stream.ResourceKey
	for _, name := range []string{"a", "b"} {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "guestbook"}
		key.Name = name
		apps = append(apps, key)
	}
	app := func(path string) map[string]any {
		return map[string]any{
			"project": "web", "destination": map[string]any{"name": "edge-1", "namespace": "x"},
			"source": map[string]any{"repoURL": "https://git.test/a", "path": path},
		}
	}
	for _, key := range apps {
		put(key, app("one"))
		if l.source.projects.namedProjects.Barred[key] == "" {
			t.Fatalf("%s is admitted by a project that is not there", key)
		}
	}
	put(project, map[string]any{
		"sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "namespace": "*"}},
	})
	put(apps[0], app("two"))
	l.source.projects.readmit()
	for _, key := range apps {
		if why := l.source.projects.namedProjects.Barred[key]; why != "" {
			t.Errorf("%s: %s", key, why)
		}
	}
}
