package rights_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
)

// objectsOf are those of a chart of ours, in namespace argocd.
func objectsOf(t *testing.T, name string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	folder, err := charts.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := release.Render(folder, "argocd", values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// What an install needs, and what the service account of a program does, follows from the chart.
func TestOfCharts(t *testing.T) {
	t.Parallel()
	agent := map[string]any{"config": map[string]any{
		"name": "edge-1", "mode": "managed", "access": map[string]any{"enabled": true, "exec": true},
		"principal": map[string]any{"address": "hub.example:443", "spiffe_ids": []any{"spiffe://hub.example/argomesh/principal"}},
	}}
	for chart, c := range map[string]struct {
		values      map[string]any
		make, roles []rights.Right
	}{
		charts.Principal: {
			make: []rights.Right{
				{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "argocd"},
				{Verb: "patch", Resource: "services", Namespace: "argocd"},
				{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
				{Verb: "create", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
				{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
				{Verb: "create", Group: "networking.k8s.io", Resource: "networkpolicies", Namespace: "argocd"},
			},
			roles: []rights.Right{
				{Verb: "list", Resource: "secrets", Namespace: "argocd"},
				{Verb: "patch", Group: "argomesh.io", Resource: "agents", Subresource: "status", Namespace: "argocd"},
				{Verb: "delete", Group: "argoproj.io", Resource: "applications"},
				{Verb: "update", Resource: "configmaps", Name: "argomesh-hub", Namespace: "argocd"},
			},
		},
		charts.Agent: {
			values: agent,
			make:   []rights.Right{{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Namespace: "argocd"}},
			roles: []rights.Right{
				{Verb: "create", Group: "argoproj.io", Resource: "applications", Namespace: "argocd"},
				{Verb: "create", Resource: "pods", Subresource: "attach"},
			},
		},
	} {
		objects := objectsOf(t, chart, c.values)
		toMake := rights.ToMake(objects)
		ofRoles, err := rights.OfRoles(objects)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.make {
			if !slices.Contains(toMake, want) {
				t.Errorf("to install %s takes %+v, which is not among %+v", chart, want, toMake)
			}
		}
		for _, want := range c.roles {
			if !slices.Contains(ofRoles, want) {
				t.Errorf("the roles of %s have %+v, which is not among %+v", chart, want, ofRoles)
			}
		}
		for i, one := range toMake {
			if one.Resource == "" || slices.Contains(toMake[:i], one) {
				t.Errorf("to install %s takes %+v", chart, one)
			}
		}
	}
}

// Who is asked for are the user of the client, and a service account with its groups.
func TestMissing(t *testing.T) {
	t.Parallel()
	needs := slices.Concat(rights.To("get,list", "", "secrets", "argocd"), rights.To("create", "argoproj.io", "applications", ""))
	needs[1].Name, needs[2].Subresource = "one", "status"
	var denied error
	client := fake.NewClientset()
	answer := func(verb string) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: verb == "get"}
	}
	client.PrependReactor("create", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		switch ask := action.(k8stesting.CreateAction).GetObject().(type) {
		case *authorizationv1.SelfSubjectAccessReview:
			ask.Status = answer(ask.Spec.ResourceAttributes.Verb)
			return true, ask, denied
		case *authorizationv1.SubjectAccessReview:
			if ask.Spec.User != "system:serviceaccount:argocd:argomesh-principal" || !slices.Contains(ask.Spec.Groups, "system:serviceaccounts:argocd") {
				t.Errorf("it asks of %+v", ask.Spec)
			}
			ask.Status = answer(ask.Spec.ResourceAttributes.Verb)
			return true, ask, denied
		}
		return false, nil, nil
	})
	want := []string{"list secrets one in namespace argocd of the hub", "create applications/status.argoproj.io of the hub"}
	of := func(ctx context.Context) ([]string, error) {
		return rights.MissingOf(ctx, client, rights.Account{Namespace: "argocd", Name: "argomesh-principal"}, "hub", needs)
	}
	if got, err := of(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("the service account lacks %q, %v; want %q", got, err, want)
	}
	if got, err := rights.Missing(t.Context(), client, "hub", needs); err != nil || !slices.Equal(got, want) {
		t.Errorf("the user lacks %q, %v; want %q", got, err, want)
	}
	denied = errors.New("forbidden")
	if _, err := of(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("who may not ask gets %v", err)
	}
}
