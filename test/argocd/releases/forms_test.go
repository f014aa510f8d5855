package argocd

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// known reports whether this release has all fields of an object.
func known(raw json.RawMessage, into any) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into) == nil
}

// What arrives has no field that this release does not know, unless the original has.
func TestNothingUnknownIsAdded(t *testing.T) {
	var e bytesOf
	readInto(t, &e)
	checked := 0
	hold := func(original, stored json.RawMessage, typ reflect.Type) {
		t.Helper()
		if !known(original, reflect.New(typ).Interface()) {
			return
		}
		checked++
		if !known(stored, reflect.New(typ).Interface()) {
			t.Errorf("%s arrives as %s, of which this release does not know all", original, stored)
		}
	}
	for _, s := range append(e.Specs, e.Mirrors...) {
		hold(s.Original, s.Stored, reflect.TypeFor[v1alpha1.ApplicationSpec]())
	}
	projects := e.Projects
	for _, a := range e.Accounts {
		projects = append(projects, a.Projects...)
	}
	for _, p := range projects {
		hold(p.Original, p.Stored, reflect.TypeFor[v1alpha1.AppProject]())
	}
	if checked < 800 {
		t.Errorf("only %d objects have nothing but what this release knows", checked)
	}
}

// What argocd-server of this release makes of a mirror that it writes is the mirror as it
// was. Before 3.4 it writes an empty jsonnet into every directory, which is undone once for
// each time.
func TestTypedForm(t *testing.T) {
	checked := 0
	for _, m := range read(t).Mirrors {
		var spec v1alpha1.ApplicationSpec
		if !known(m.Stored, &spec) {
			continue // the definition of this release has no such field either
		}
		checked++
		var stored, again any
		if err := json.Unmarshal(m.Stored, &stored); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text(t, spec)), &again); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(stored, withoutJsonnet(again)) {
			t.Errorf("%s is stored as %s, and argocd-server makes of it %s", m.Original, m.Stored, text(t, spec))
		}
	}
	if checked < 300 {
		t.Errorf("only %d mirrors have nothing but what this release knows", checked)
	}
}

// withoutJsonnet is an object without what is called jsonnet and says nothing.
func withoutJsonnet(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if empty, is := v["jsonnet"].(map[string]any); is && len(empty) == 0 {
			delete(v, "jsonnet")
		}
		for _, below := range v {
			withoutJsonnet(below)
		}
	case []any:
		for _, below := range v {
			withoutJsonnet(below)
		}
	}
	return v
}
