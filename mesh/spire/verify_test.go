package spire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/spire"
)

func TestVerify(t *testing.T) {
	id := spiffeid.RequireFromString
	want, err := spire.HubObjects(mesh.Snapshot{
		Self: id("spiffe://own.test/ns/argocd/sa/argomesh-principal"),
		Reach: &mesh.Reach{
			Stream: mesh.StreamPort{Port: 8443, Exposure: mesh.ExposureDirect, Method: identity.MethodX509, Hub: mesh.HubAddress{Host: "hub.test", Port: 443}},
			Agents: map[identity.AgentName][]spiffeid.ID{edge: {id("spiffe://partner.test/a")}},
		},
	}, spire.HubConfig{})
	if err != nil || len(want) != 1 {
		t.Fatalf("HubObjects() = %v, %v", want, err)
	}
	const manager = "argomesh-mesh.argocd"
	name := "ClusterSPIFFEID " + want[0].GetName()
	registered := want[0].DeepCopy() // as agentctl identity register makes it
	registered.SetName("argomesh.edge-1")
	old := registered.DeepCopy()
	old.SetName("old")
	old.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply}})
	narrow := want[0].DeepCopy()
	unstructured.RemoveNestedField(narrow.Object, "spec", "federatesWith")
	for title, tt := range map[string]struct {
		have []*unstructured.Unstructured
		want []string
	}{
		"as rendered": {[]*unstructured.Unstructured{want[0], registered}, nil},
		"missing":     {nil, []string{name + " is missing: the pods of spiffe://own.test/ns/argocd/sa/argomesh-principal get no SVID by it."}},
		"without the bundle of an agent": {[]*unstructured.Unstructured{narrow}, []string{
			name + ` has spec.federatesWith nothing, and should have ["partner.test"]: the pods of spiffe://own.test/ns/argocd/sa/argomesh-principal get another SVID or other bundles than they need.`,
		}},
		"left over": {[]*unstructured.Unstructured{want[0], old}, []string{"ClusterSPIFFEID old is left over: nothing of today's configuration asks for it, so delete it."}},
	} {
		t.Run(title, func(t *testing.T) {
			var got []string
			for _, difference := range spire.Verify(want, tt.have, manager) {
				got = append(got, difference.Text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Verify() (-want +got):\n%s", diff)
			}
		})
	}
}
