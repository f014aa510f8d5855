package ownership

import (
	"slices"
	"testing"

	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// What goes with automated sync, whichever part of its path is not known, is refused;
// with an AppProject all that is not empty.
func TestFit(t *testing.T) {
	parse := func(spec string) *schema.Schema {
		s, err := schema.Parse([]byte(`{"spec":{"versions":[{"name":"v1alpha1","schema":{"openAPIV3Schema":{"properties":`+spec+`}}}]}}`), "v1alpha1")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const automated = `{"spec":{"properties":{"a":{},"syncPolicy":{"properties":{"automated":{"properties":{"prune":{}}}}}}}}`
	for name, tt := range map[string]struct {
		kind    stream.Kind
		schema  string // empty: not known
		spec    m
		dropped []string
		refused string // the path
	}{
		"all is known":                {stream.Application, automated, m{"a": 1, "syncPolicy": m{"automated": m{"prune": true}}}, nil, ""},
		"nothing is known":            {stream.Application, "", m{"b": 1, "syncPolicy": m{"automated": m{"enabled": false}}}, nil, ""},
		"beside automated sync":       {stream.Application, automated, m{"b": m{"c": 1}, "syncPolicy": m{"retry": m{}, "automatedToo": 1}}, []string{"spec.b", "spec.syncPolicy.automatedToo", "spec.syncPolicy.retry"}, ""},
		"items of one list":           {stream.Application, `{"spec":{"properties":{"l":{"items":{}}}}}`, m{"l": []any{m{"x": 1}, m{"x": 2}, m{"y": 1}}}, []string{"spec.l[].x", "spec.l[].y"}, ""},
		"of automated sync":           {stream.Application, automated, m{"b": 1, "syncPolicy": m{"automated": m{"enabled": false}}}, nil, "spec.syncPolicy.automated.enabled"},
		"automated sync":              {stream.Application, `{"spec":{"properties":{"syncPolicy":{}}}}`, m{"syncPolicy": m{"automated": nil}}, nil, "spec.syncPolicy.automated"},
		"the policy of sync":          {stream.Application, `{"spec":{}}`, m{"syncPolicy": m{}}, nil, "spec.syncPolicy"},
		"the spec":                    {stream.Application, `{}`, m{}, nil, "spec"},
		"of a project":                {stream.AppProject, `{"spec":{}}`, m{"a": m{"b": false}}, nil, "spec.a"},
		"of a project, and empty":     {stream.AppProject, `{"spec":{}}`, m{"a": m{}, "b": []any{}, "c": "", "d": false, "e": nil}, []string{"spec.a", "spec.b", "spec.c", "spec.d", "spec.e"}, ""},
		"more than can be told":       {stream.Application, `{"spec":{}}`, m{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1, "l": 1, "m": 1, "n": 1, "o": 1, "p": 1, "q": 1}, []string{"spec.a", "spec.b", "spec.c", "spec.d", "spec.e", "spec.f", "spec.g", "spec.h", "spec.i", "spec.j", "spec.k", "spec.l", "spec.m", "spec.n", "spec.o", "spec.p"}, ""},
		"more than that, and refused": {stream.Application, `{"spec":{}}`, m{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1, "l": 1, "m": 1, "n": 1, "o": 1, "p": 1, "syncPolicy": m{}}, nil, "spec.syncPolicy"},
	} {
		r := ruleSet(t, stream.Spoke, stream.Managed)
		if tt.schema != "" {
			r.Schemas = map[stream.Kind]*schema.Schema{tt.kind: parse(tt.schema)}
		}
		dropped, refusal := prune(r, tt.kind, tt.spec)
		if !slices.Equal(dropped, tt.dropped) {
			t.Errorf("%s: fit() drops %q, want %q", name, dropped, tt.dropped)
		}
		want := ""
		if tt.refused != "" {
			want = "invalid: the API server of the spoke does not know " + tt.refused +
				", and without it the rest would allow more; its Argo CD is too old for this " + string(tt.kind)
		}
		if got := refusalText(refusal); got != want {
			t.Errorf("%s: fit() refuses %q, want %q", name, got, want)
		}
	}
}
