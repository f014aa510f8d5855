package argocd

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// TestMirrorsAreAsArgoCDWritesThem holds the specs of mirrors against what argocd-server
// makes of them when it updates the whole object, as it does to set an operation: they come
// back as they are. Each field is set alone, and then several at a time.
func TestMirrorsAreAsArgoCDWritesThem(t *testing.T) {
	fields := fieldsOf(reflect.TypeFor[v1alpha1.ApplicationSpec]())
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: theAgent(t), Namespace: argocd, ClusterServer: clusterServer}}}
	changed := 0
	check := func(spec map[string]any) {
		t.Helper()
		required(t, reflect.TypeFor[v1alpha1.ApplicationSpec](), spec) // what the API server has
		if !cmp.Equal(generic(t, spec), again(t, spec)) {
			changed++
		}
		stored := plannedSpec(t, rules, appKey(agentName), spec)
		if got := again(t, stored); !cmp.Equal(got, stored) {
			t.Errorf("%v is stored as\n%v, and argocd-server makes of it\n%v", spec, stored, got)
		}
	}
	for _, f := range fields {
		for _, value := range f.values() {
			check(f.alone(value))
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the specs are to be the same each time
	for range 2000 {
		spec := map[string]any{}
		for range 1 + random.IntN(12) {
			f := fields[random.IntN(len(fields))]
			if values := f.values(); len(values) > 0 {
				merge(spec, generic(t, f.alone(values[random.IntN(len(values))])))
			}
		}
		check(spec)
	}
	if changed < 200 {
		t.Errorf("argocd-server would leave all but %d specs as spokes have them: the test says little", changed)
	}
}

// again is a spec as argocd-server writes it.
func again(t *testing.T, spec any) any {
	t.Helper()
	var read v1alpha1.ApplicationSpec
	typed(t, spec, &read)
	return generic(t, &read)
}

// generic is a value as JSON.
func generic(t *testing.T, value any) any {
	t.Helper()
	var out any
	if err := json.Unmarshal([]byte(text(t, value)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// merge puts what from has into a spec: into the first element of a list that is there.
func merge(into map[string]any, from any) {
	source, _ := from.(map[string]any)
	for name, value := range source {
		switch there := into[name].(type) {
		case map[string]any:
			merge(there, value)
			continue
		case []any:
			if list, is := value.([]any); is && len(there) > 0 && len(list) > 0 {
				if first, is := there[0].(map[string]any); is {
					merge(first, list[0])
					continue
				}
			}
		}
		into[name] = value
	}
}

// required adds the fields without which the API server takes no value of this type: those
// that the type writes when it is empty.
func required(t *testing.T, typ reflect.Type, value any) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if list, is := value.([]any); is && typ.Kind() == reflect.Slice {
		for _, element := range list {
			required(t, typ.Elem(), element)
		}
		return
	}
	m, is := value.(map[string]any)
	if !is || typ.Kind() != reflect.Struct || writesItself(typ) {
		return
	}
	empty, _ := generic(t, reflect.New(typ).Interface()).(map[string]any)
	for name, value := range empty {
		if _, there := m[name]; !there {
			m[name] = value
		}
	}
	for i := range typ.NumField() {
		if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); name != "" {
			required(t, typ.Field(i).Type, m[name])
		}
	}
}
