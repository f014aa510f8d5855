package argocd

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

var specs = map[stream.Kind]reflect.Type{
	stream.AppProject:  reflect.TypeFor[v1alpha1.AppProjectSpec](),
	stream.Application: reflect.TypeFor[v1alpha1.ApplicationSpec](),
}

// decisions are those about a kind, by path.
func decisions(t *testing.T, kind stream.Kind) map[string]appspec.Field {
	t.Helper()
	out := map[string]appspec.Field{}
	for _, f := range appspec.Fields(kind) {
		for _, path := range f.Paths() {
			if _, twice := out[path]; twice {
				t.Errorf("%s of %s is decided twice", path, kind)
			}
			out[path] = f
		}
	}
	return out
}

// TestEveryFieldIsDecided walks Argo CD's types: each field of a spec, nested ones too,
// has a decision, and no decision is about a field that is not there.
func TestEveryFieldIsDecided(t *testing.T) {
	for kind, spec := range specs {
		decided := decisions(t, kind)
		open := maps.Clone(decided)
		for _, f := range fieldsOf(spec) {
			delete(open, f.path)
			if _, found := decided[f.path]; !found && !inLeftOut(decided, f.path) {
				t.Errorf("nobody decided about %s of %s: see mirror.Fields", f.path, kind)
			}
		}
		for path := range open {
			t.Errorf("%s of %s is decided, and Argo CD does not have it", path, kind)
		}
	}
}

// inLeftOut reports whether a field is in one that is left out, on both sides.
func inLeftOut(decided map[string]appspec.Field, path string) bool {
	for i, c := range path {
		if c == '.' {
			if f, found := decided[strings.TrimSuffix(path[:i], "[]")]; found && f.Spoke == appspec.LeftOut && f.Hub == appspec.LeftOut {
				return true
			}
		}
	}
	return false
}

// TestFieldsOfProjects sets each field of a project, and looks whether what is said of it
// is so. What is rewritten has tests of its own.
func TestFieldsOfProjects(t *testing.T) {
	decided := decisions(t, stream.AppProject)
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		t.Run(mode.String(), func(t *testing.T) {
			for _, f := range fieldsOf(specs[stream.AppProject]) {
				values := f.values()
				value := values[len(values)-1] // what says something
				// The project admits the agent, whatever else it says.
				spec := map[string]any{
					"sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "server": "*", "namespace": "*"}},
				}
				asked := f.alone(value)
				for name, is := range asked {
					if _, there := spec[name]; !there {
						spec[name] = is
					}
				}
				fate, found := decided[f.path]
				switch {
				case f.path == "permitOnlyProjectScopedClusters" && mode == stream.Managed:
					continue // it decides whether there is a copy: TestScopedClusters
				case strings.HasPrefix(f.path, "destination"):
					continue // an entry with nothing else is for no cluster: TestManagedProject, TestServiceAccounts
				case !found:
					fate = appspec.Field{Spoke: appspec.LeftOut, Hub: appspec.LeftOut}
				}
				got := at(copyOfSpec(t, mode, spec), f.names)
				want := fate.Spoke
				if mode == stream.Autonomous {
					want = fate.Hub
				}
				switch {
				case want == appspec.Same && !cmp.Equal(got, at(spec, f.names)):
					t.Errorf("%s arrives as %v instead of %v", f.path, got, at(spec, f.names))
				case want == appspec.LeftOut && got != nil:
					t.Errorf("%s is to be left out, and arrives as %v", f.path, got)
				}
			}
		})
	}
}

// TestFieldsOfMirrors is the same of the fields of an Application on the hub. What is
// stored on a spoke is held against Argo CD's own by TestNormalForm.
func TestFieldsOfMirrors(t *testing.T) {
	decided := decisions(t, stream.Application)
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: theAgent(t), Namespace: argocd, ClusterServer: clusterServer}}}
	for _, f := range fieldsOf(specs[stream.Application]) {
		if f.typ.Kind() == reflect.Struct {
			continue // it says nothing but by what is in it
		}
		values := f.values()
		spec := f.alone(values[len(values)-1])
		got, is := at(plannedSpec(t, rules, appKey(agentName), spec), f.names), at(spec, f.names)
		if same := cmp.Equal(got, is); same != (decided[f.path].Hub == appspec.Same) && f.path != "destination" {
			t.Errorf("%s arrives as %v, and is %v; it is to arrive %s", f.path, got, is, decided[f.path].Hub)
		}
	}
}

// copyOfSpec is what arrives of a project with that spec.
func copyOfSpec(t *testing.T, mode stream.Mode, spec map[string]any) (copied map[string]any) {
	t.Helper()
	run(t, mode, func(w *linkEnv) {
		source, sink, prefix := sides(w, mode)
		w.put(source, projectKey("web"), map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"namespace": argocd, "name": "web"}, "spec": spec,
		})
		w.settle()
		o, err := sink.Read(w.ctx, projectKey(prefix+"web"))
		if err != nil {
			t.Fatalf("a project with %v: %v", spec, err)
		}
		var object struct{ Spec map[string]any }
		if err := json.Unmarshal(o.Raw, &object); err != nil {
			t.Fatal(err)
		}
		copied = object.Spec
	})
	return copied
}

// at is what is at a path of a spec, in the first element of each list; nil when there is
// nothing. Numbers are as JSON has them.
func at(spec any, names []string) any {
	for _, name := range names {
		switch parent := spec.(type) {
		case map[string]any:
			spec = parent[name]
		case []any:
			if len(parent) == 0 {
				return nil
			}
			spec = parent[0]
		default:
			return nil
		}
	}
	if n, ok := spec.(int); ok {
		return float64(n)
	}
	return spec
}
