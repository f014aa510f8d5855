package links

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// What takes along what is in it, or what no one may read, is named; an API server that
// does not answer is an error.
func TestPlaces(t *testing.T) {
	const (
		edgeDeleted   = "namespace edge-1 is being deleted, with all that is in it"
		hubDeleted    = "namespace argocd is being deleted, with all that is in it"
		appsDeleted   = "CustomResourceDefinition applications.argoproj.io is being deleted, with all that is in it"
		agentsDeleted = "CustomResourceDefinition agents.argomesh.io is being deleted, with all that is in it"
	)
	type objects map[string]bool // and whether they are being deleted
	all := func(change objects) objects {
		out := objects{"argocd": false, "edge-1": false, "web": false, applicationDefinition: false, agentDefinition: false}
		for name, deleting := range change {
			out[name] = deleting
		}
		return out
	}
	for name, test := range map[string]struct {
		there     objects
		departing bool
		refuse    error // of reads of definitions
		want      map[string]string
		fails     bool
	}{
		"all goes on":                        {there: all(nil), want: map[string]string{"edge-1": "", "web": ""}},
		"a namespace":                        {there: all(objects{"edge-1": true}), want: map[string]string{"edge-1": edgeDeleted, "web": ""}},
		"the definition":                     {there: all(objects{applicationDefinition: true}), want: map[string]string{"edge-1": appsDeleted, "web": appsDeleted}},
		"the Agents' place":                  {there: all(objects{"argocd": true, agentDefinition: true}), want: map[string]string{"edge-1": "", "web": ""}},
		"an Agent that goes":                 {there: all(objects{"edge-1": true, applicationDefinition: true}), departing: true, want: map[string]string{"edge-1": "", "web": ""}},
		"an Agent that goes with its place":  {there: all(objects{"argocd": true}), departing: true, want: map[string]string{"edge-1": hubDeleted, "web": hubDeleted}},
		"an Agent that goes with all Agents": {there: all(objects{agentDefinition: true}), departing: true, want: map[string]string{"edge-1": agentsDeleted, "web": agentsDeleted}},
		"a right is missing": {
			there: all(nil), refuse: apierrors.NewForbidden(definitionResource.GroupResource(), applicationDefinition, errors.New("no")),
			want: map[string]string{
				"edge-1": "the principal may not read whether CustomResourceDefinition applications.argoproj.io is being deleted",
				"web":    "the principal may not read whether CustomResourceDefinition applications.argoproj.io is being deleted",
			},
		},
		"nobody answers":         {there: all(nil), refuse: apierrors.NewInternalError(errors.New("away")), fails: true},
		"there is none any more": {there: objects{"web": false, applicationDefinition: false}, want: map[string]string{"edge-1": "namespace edge-1 is gone", "web": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := fake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			var there []runtime.Object
			for name, deleting := range test.there {
				o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
				if name == applicationDefinition || name == agentDefinition {
					o.TypeMeta = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
				}
				if deleting {
					o.DeletionTimestamp, o.Finalizers = new(metav1.Now()), []string{"x"}
				}
				there = append(there, o)
			}
			client := fake.NewSimpleMetadataClient(scheme, there...)
			client.PrependReactor("get", definitionResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return test.refuse != nil, nil, test.refuse
			})
			got, err := terminationCheck{client, "argocd", test.departing}.run(t.Context(), []string{"edge-1", "web"})
			if (err != nil) != test.fails {
				t.Fatalf("doomed() fails with %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("doomed() (-want +got):\n%s", diff)
			}
		})
	}
}
