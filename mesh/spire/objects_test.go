package spire_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/golden"
)

// pods is the registration of edge-1 by its pods.
func pods(change func(*spire.Registration)) spire.Registration {
	return spiretest.Registration(func(r *spire.Registration) {
		r.ParentIDs, r.Selectors = nil, nil
		r.Pods = spire.Pods{Namespace: "argocd", ServiceAccount: "argomesh-agent", Labels: map[string]string{"app.kubernetes.io/name": "argomesh-agent"}}
		if change != nil {
			change(r)
		}
	})
}

func objectsOf(t *testing.T, r spire.Registration) []*unstructured.Unstructured {
	t.Helper()
	objects, err := r.Objects()
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func federationOf(t *testing.T, change func(*spire.Federation)) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "partner.bundle.json"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := spire.ParseBundle(partner, text)
	if err != nil {
		t.Fatal(err)
	}
	f := spire.Federation{TrustDomain: partner, EndpointURL: "https://spire.partner.test:8443/", EndpointID: spire.ServerID(partner), Bundle: b}
	if change != nil {
		change(&f)
	}
	obj, err := f.Object()
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestGoldenObjects(t *testing.T) {
	everything := func(r *spire.Registration) {
		r.Selectors = append(r.Selectors, spire.Selector{Type: "k8s", Value: "container-name:agent"})
		r.X509TTL, r.JWTTTL, r.FederatesWith = time.Hour, 5*time.Minute, []spiffeid.TrustDomain{partner, other}
		r.DNSNames, r.Hint, r.Admin, r.ClassName = []string{"edge-1.test"}, "stream", true, "spire-system-spire"
	}
	tests := map[string][]*unstructured.Unstructured{
		"pods":            objectsOf(t, pods(nil)),
		"pods_everything": objectsOf(t, pods(everything)),
		"pods_two_ids":    objectsOf(t, pods(func(r *spire.Registration) { r.IDs = append(r.IDs, newID) })),
		"pods_namespace":  objectsOf(t, pods(func(r *spire.Registration) { r.Pods = spire.Pods{Namespace: "argocd"} })),
		"entry":           objectsOf(t, spiretest.Registration(nil)),
		"entry_everything": objectsOf(t, spiretest.Registration(func(r *spire.Registration) {
			r.ParentIDs = append(r.ParentIDs, alias)
			everything(r)
		})),
		"federation":     {federationOf(t, nil)},
		"federation_web": {federationOf(t, func(f *spire.Federation) { f.EndpointID, f.Bundle, f.ClassName = spiffeid.ID{}, nil, "x" })},
		"federation_name": {federationOf(t, func(f *spire.Federation) {
			f.TrustDomain, f.EndpointID, f.Bundle = spiffeid.RequireTrustDomainFromString("under_score.test"), spiffeid.ID{}, nil
		})},
	}
	for title, objects := range tests {
		t.Run(title, func(t *testing.T) {
			var got bytes.Buffer
			for i, obj := range objects {
				if i > 0 {
					got.WriteString("---\n")
				}
				raw, err := yaml.Marshal(obj.Object)
				if err != nil {
					t.Fatal(err)
				}
				got.Write(raw)
			}
			golden.Compare(t, filepath.Join("testdata", title+".out.yaml"), got.Bytes())
		})
	}
}

// The controller's templates render to what was asked for.
func TestTemplatesAreLiteral(t *testing.T) {
	r := pods(func(r *spire.Registration) {
		r.Selectors = []spire.Selector{{Type: "k8s", Value: "pod-label:a:{{ .Evil }}{{{"}}
		r.DNSNames = []string{"a{{b"}
	})
	obj := objectsOf(t, r)[0]
	for path, want := range map[string]string{"workloadSelectorTemplates": "k8s:pod-label:a:{{ .Evil }}{{{", "dnsNameTemplates": "a{{b"} {
		list, _, err := unstructured.NestedStringSlice(obj.Object, "spec", path)
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := template.New(path).Parse(list[0])
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		if err := tmpl.Execute(&got, nil); err != nil || got.String() != want {
			t.Errorf("%s renders to %q, %v, want %q", list[0], got.String(), err, want)
		}
	}
}

func TestObjectsThatAreRefused(t *testing.T) {
	for title, change := range map[string]func(*spire.Registration){
		"neither pods nor parent":  func(r *spire.Registration) { r.Pods = spire.Pods{} },
		"labels without namespace": func(r *spire.Registration) { r.Pods.Namespace = "" },
		"a hint too long":          func(r *spire.Registration) { r.Hint = strings.Repeat("x", 1025) },
		"no id":                    func(r *spire.Registration) { r.IDs = nil },
	} {
		if objects, err := pods(change).Objects(); !errors.Is(err, spire.ErrInvalid) {
			t.Errorf("%s: Objects() = %v, %v", title, objects, err)
		}
	}
}

func TestPlanObjects(t *testing.T) {
	want := objectsOf(t, pods(func(r *spire.Registration) {
		r.FederatesWith, r.X509TTL = []spiffeid.TrustDomain{partner, other}, time.Hour
	}))
	stored := func(change func(map[string]any, *unstructured.Unstructured)) *unstructured.Unstructured {
		obj := want[0].DeepCopy()
		obj.SetResourceVersion("7")
		change(obj.Object["spec"].(map[string]any), obj) //nolint:forcetypeassert // a spec is a map
		return obj
	}
	nothing := func(map[string]any, *unstructured.Unstructured) {}
	tests := map[string]struct {
		desired, observed []*unstructured.Unstructured
		want              []string
	}{
		"new":      {desired: want, want: []string{"created"}},
		"the same": {desired: want, observed: []*unstructured.Unstructured{stored(nothing)}, want: []string{"unchanged"}},
		"the same in other words": {desired: want, observed: []*unstructured.Unstructured{stored(func(spec map[string]any, _ *unstructured.Unstructured) {
			spec["ttl"], spec["federatesWith"], spec["admin"], spec["hint"] = "60m", []any{"partner.test", "other.test"}, false, ""
		})}, want: []string{"unchanged"}},
		"somebody made it an administrator": {desired: want, observed: []*unstructured.Unstructured{stored(func(spec map[string]any, _ *unstructured.Unstructured) {
			spec["admin"] = true
		})}, want: []string{"updated spec.admin: true -> unset"}},
		"another id": {desired: want, observed: []*unstructured.Unstructured{stored(func(spec map[string]any, _ *unstructured.Unstructured) {
			spec["spiffeIDTemplate"] = "spiffe://own.test/x"
		})}, want: []string{"updated spec.spiffeIDTemplate: spiffe://own.test/x -> " + edgeID.String()}},
		"taken back": {observed: []*unstructured.Unstructured{stored(nothing)}, want: []string{"deleted"}},
		"being deleted": {desired: want, observed: []*unstructured.Unstructured{stored(func(_ map[string]any, obj *unstructured.Unstructured) {
			now := metav1.Now()
			obj.SetDeletionTimestamp(&now)
		})}, want: []string{"refused"}},
		"somebody else's": {desired: want, observed: []*unstructured.Unstructured{stored(func(_ map[string]any, obj *unstructured.Unstructured) { obj.SetLabels(nil) })}, want: []string{"refused"}},
		"another registration's, taken back": {observed: []*unstructured.Unstructured{stored(func(_ map[string]any, obj *unstructured.Unstructured) {
			obj.SetLabels(map[string]string{spire.ManagedByLabel: spire.ManagedBy, spire.RegistrationLabel: "edge-2"})
		})}},
		"somebody else's, taken back": {observed: []*unstructured.Unstructured{stored(func(_ map[string]any, obj *unstructured.Unstructured) {
			obj.SetLabels(map[string]string{spire.RegistrationLabel: "edge-1"})
		})}},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			var got []string
			for _, c := range spire.PlanObjects(edge, tt.desired, tt.observed) {
				text := c.Action.Participle()
				if c.Action == diff.Update {
					for _, d := range c.Fields {
						text += " " + d.String()
					}
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("PlanObjects() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanFederationObjects(t *testing.T) {
	want := federationOf(t, nil)
	theirs := want.DeepCopy()
	theirs.SetName("theirs")
	theirs.SetLabels(nil)
	about := want.DeepCopy()
	if err := unstructured.SetNestedField(about.Object, "https://old.test/", "spec", "bundleEndpointURL"); err != nil {
		t.Fatal(err)
	}
	unrelated := federationOf(t, func(f *spire.Federation) { f.TrustDomain, f.Bundle, f.EndpointID = other, nil, spiffeid.ID{} })
	list := func(objects ...*unstructured.Unstructured) []*unstructured.Unstructured { return objects }
	tests := map[string]struct {
		desired  *unstructured.Unstructured
		observed []*unstructured.Unstructured
		want     []string
	}{
		"new":                         {want, list(unrelated), []string{"created"}},
		"the same":                    {want, list(unrelated, want), []string{"unchanged"}},
		"otherwise":                   {want, list(about), []string{"updated"}},
		"somebody else's":             {want, list(theirs), []string{"refused"}},
		"taken back":                  {nil, list(want, unrelated), []string{"deleted"}},
		"somebody else's, taken back": {nil, list(theirs, unrelated), nil},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			var got []string
			for _, c := range spire.PlanFederationObjects(partner, tt.desired, tt.observed) {
				got = append(got, c.Action.Participle())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("PlanFederationObjects() (-want +got):\n%s", diff)
			}
		})
	}
}
