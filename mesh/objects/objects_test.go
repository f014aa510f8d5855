package objects_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/objects"
)

// object returns one with labels of ours and a spec.
func object(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Policy",
		"metadata": map[string]any{"name": name, "namespace": "argocd", "labels": map[string]any{"part-of": "argomesh"}},
		"spec":     spec,
	}}
}

func TestCompare(t *testing.T) {
	want := map[string]any{
		"mode": "STRICT", "who": []any{"a", "b"}, "retries": map[string]any{}, "ports": []any{map[string]any{"number": int64(443)}},
	}
	for title, tt := range map[string]struct {
		have map[string]any
		want []diff.Field
	}{
		"the same": {want, nil},
		"words in another order": {map[string]any{
			"mode": "STRICT", "who": []any{"b", "a"}, "retries": map[string]any{}, "ports": []any{map[string]any{"number": int64(443)}},
		}, nil},
		"what is empty or false beside": {map[string]any{
			"mode": "STRICT", "who": []any{"a", "b"}, "retries": map[string]any{}, "ports": []any{map[string]any{"number": int64(443)}},
			"x": "", "y": false, "z": []any{}, "none": nil,
		}, nil},
		"an empty object that is gone": {map[string]any{
			"mode": "STRICT", "who": []any{"a", "b"}, "ports": []any{map[string]any{"number": int64(443)}},
		}, []diff.Field{{Path: "spec.retries", Want: "{}"}}},
		"a value, one more, one less, in a list": {map[string]any{
			"mode": "PERMISSIVE", "who": []any{"a"}, "retries": map[string]any{}, "action": "DENY", "ports": []any{map[string]any{"number": int64(80)}},
		}, []diff.Field{
			{Path: "spec.action", Have: `"DENY"`},
			{Path: "spec.mode", Have: `"PERMISSIVE"`, Want: `"STRICT"`},
			{Path: "spec.ports[0].number", Have: "80", Want: "443"},
			{Path: "spec.who", Have: `["a"]`, Want: `["a","b"]`},
		}},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, objects.Compare(object("p", tt.have), object("p", want))); diff != "" {
				t.Errorf("Compare() (-want +got):\n%s", diff)
			}
		})
	}
	bare := object("p", want)
	bare.SetLabels(map[string]string{"other": "1"})
	if diff := cmp.Diff([]diff.Field{{Path: "metadata.labels.part-of", Want: `"argomesh"`}}, objects.Compare(bare, object("p", want))); diff != "" {
		t.Errorf("Compare() without our label (-want +got):\n%s", diff)
	}
}

func TestPlan(t *testing.T) {
	manager := objects.Manager("argocd")
	by := func(o *unstructured.Unstructured, manager string) *unstructured.Unstructured {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}, {Manager: manager, Operation: metav1.ManagedFieldsOperationApply},
		})
		return o
	}
	unlabelled := func(o *unstructured.Unstructured) *unstructured.Unstructured {
		o.SetLabels(nil)
		return o
	}
	deleting := func(o *unstructured.Unstructured) *unstructured.Unstructured {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		return o
	}
	good, bad := map[string]any{"mode": "STRICT"}, map[string]any{"mode": "OFF"}
	for title, tt := range map[string]struct {
		want, have []*unstructured.Unstructured
		plan       []string
	}{
		"missing":                 {[]*unstructured.Unstructured{object("a", good)}, nil, []string{"create a"}},
		"ours and good":           {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{by(object("a", good), manager)}, []string{"keep a"}},
		"ours and changed":        {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{by(object("a", bad), manager)}, []string{"update a"}},
		"ours without its labels": {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{by(unlabelled(object("a", good)), manager)}, []string{"update a"}},
		"applied by hand":         {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{by(object("a", good), "kubectl")}, []string{"update a: taken over from another field manager"}},
		"somebody else's": {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{by(unlabelled(object("a", good)), "kubectl")}, []string{
			"refuse a: an object of that name was made by another writer and is never changed: delete it, or give the principal's Service another name",
		}},
		"another hub's": {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{by(object("a", good), objects.Manager("other"))}, []string{
			"refuse a: it is of the hub in namespace other: give the Service of one of the two principals another name",
		}},
		"being deleted": {[]*unstructured.Unstructured{object("a", good)}, []*unstructured.Unstructured{deleting(by(object("a", good), manager))}, []string{
			"refuse a: it is being deleted: it is created again when it is gone",
		}},
		"left over": {nil, []*unstructured.Unstructured{
			by(object("ours", good), manager), by(object("gone", good), manager), by(object("by hand", good), "kubectl"), by(object("another hub's", good), objects.Manager("other")),
		}, []string{"delete gone", "delete ours"}},
		"left over and going": {nil, []*unstructured.Unstructured{deleting(by(object("ours", good), manager))}, nil},
		"nothing goes before what replaces it": {
			[]*unstructured.Unstructured{object("z", good)},
			[]*unstructured.Unstructured{by(object("a", good), manager)},
			[]string{"create z", "delete a"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			var got []string
			for _, c := range objects.Plan(tt.want, tt.have, manager) {
				o := c.Want
				if o == nil {
					o = c.Have
				}
				line := c.Action.String() + " " + o.GetName()
				if c.Reason != "" {
					line += ": " + c.Reason
				}
				if c.Name != "Policy argocd/"+o.GetName() {
					t.Errorf("its name is %q", c.Name)
				}
				if wants := c.Action == diff.Create || c.Action == diff.Update && c.Reason == ""; wants != (len(c.Fields) > 0) && c.Action != diff.Refuse {
					t.Errorf("%s has fields %v", line, c.Fields)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.plan, got); diff != "" {
				t.Errorf("Plan() (-want +got):\n%s", diff)
			}
		})
	}
}

func ExamplePlan() {
	want := []*unstructured.Unstructured{object("deny", map[string]any{"action": "DENY"})}
	for _, change := range objects.Plan(want, nil, objects.Manager("argocd")) {
		fmt.Println(change.Name, change.Fields)
	}
	// Output: Policy argocd/deny [metadata.labels.part-of: unset -> "argomesh" spec.action: unset -> "DENY"]
}
