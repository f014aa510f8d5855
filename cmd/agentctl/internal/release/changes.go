package release

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Change is what a plan would do to one object.
type Change struct {
	// Object is its kind and name, and Act what becomes of it: created, deleted or configured.
	Object, Act string
	// Diff are the lines by which its YAML changes, as diff -u has them; none of a Secret.
	Diff []string
}

// Changes returns what a plan would change, by object. There are none where nothing would, and where Helm renders
// nothing, since an operation was ended in the middle.
func (p Plan) Changes() ([]Change, error) {
	if p.Act == Keep || p.Act == Mend {
		return nil, nil
	}
	before, err := byName(p.State.Manifest)
	if err != nil {
		return nil, err
	}
	after, err := byName(p.Manifest)
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, name := range slices.Sorted(keysOf(before, after)) {
		was, had := before[name]
		is, has := after[name]
		switch {
		case !had:
			out = append(out, Change{Object: name, Act: "created"})
		case !has:
			out = append(out, Change{Object: name, Act: "deleted"})
		case was != is || slices.Contains(p.Missing, name):
			out = append(out, Change{name, "configured", diffOf(name, was, is)})
		}
	}
	return out, nil
}

// diffOf returns how an object changes.
func diffOf(name, before, after string) (out []string) {
	if before == after || strings.HasPrefix(name, "Secret ") {
		return nil
	}
	for line := range strings.Lines(udiff.Unified("before", "after", before, after)) {
		if !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "+++ ") {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	return out
}

// byName returns the objects of a manifest as YAML, by kind and name.
func byName(manifest string) (map[string]string, error) {
	objects, err := Objects(manifest)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(objects))
	for _, o := range objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out[o.GetKind()+" "+o.GetName()] = string(raw)
	}
	return out, nil
}

// keysOf yields the keys of both, each once.
func keysOf(a, b map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range a {
			if !yield(k) {
				return
			}
		}
		for k := range b {
			if _, both := a[k]; !both && !yield(k) {
				return
			}
		}
	}
}

// Objects returns those of a plan, as far as they are known.
func (p Plan) Objects() ([]*unstructured.Unstructured, error) {
	return Objects(cmp.Or(p.Manifest, p.Draft))
}

// Pods returns the pods of the Deployment of a plan, which has one.
func (p Plan) Pods() (corev1.PodTemplateSpec, error) {
	objects, err := p.Objects()
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d)
		return d.Spec.Template, err
	}
	return corev1.PodTemplateSpec{}, errors.New("the chart has no Deployment")
}
