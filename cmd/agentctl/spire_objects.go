package main

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// objects is the Kubernetes API of a cluster with spire-controller-manager, as far as
// its objects are concerned.
type objects struct {
	client dynamic.Interface
	host   string
}

// objects opens the connection. Nothing is contacted yet.
func (c *connection) objects() (*objects, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, explainKubeconfig(err, c.rules)
	}
	return &objects{client: client, host: config.Host}, nil
}

// registrationKinds are those of the objects of a registration.
var registrationKinds = []string{spire.ClusterSPIFFEIDKind, spire.ClusterStaticEntryKind}

// observe returns what spire.PlanObjects needs for the registration name.
func (o *objects) observe(ctx context.Context, name identity.AgentName, desired []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, kind := range registrationKinds {
		list, err := o.list(ctx, kind, spire.RegistrationLabel+"="+name.String())
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	for _, want := range desired {
		if slices.ContainsFunc(out, func(have *unstructured.Unstructured) bool {
			return have.GetKind() == want.GetKind() && have.GetName() == want.GetName()
		}) {
			continue
		}
		there, err := o.client.Resource(spire.Resource(want.GetKind())).Get(ctx, want.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, o.explain(err, "get "+want.GetKind())
		default:
			out = append(out, there)
		}
	}
	return out, nil
}

// list returns the objects of a kind that selector selects.
func (o *objects) list(ctx context.Context, kind, selector string) ([]*unstructured.Unstructured, error) {
	list, err := o.client.Resource(spire.Resource(kind)).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, o.explain(err, "list "+spire.Resource(kind).Resource)
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// apply carries out plan and calls done with each change that is done. With dryRun the
// API server checks everything and stores nothing.
func (o *objects) apply(ctx context.Context, plan []spire.Change[*unstructured.Unstructured], dryRun bool, done func(spire.Change[*unstructured.Unstructured])) error {
	if err := spire.Refusals(plan); err != nil {
		return err
	}
	var dry []string
	if dryRun {
		dry = []string{metav1.DryRunAll}
	}
	for _, change := range plan {
		if err := o.applyOne(ctx, change, dry); err != nil {
			return o.explain(err, change.Name)
		}
		done(change)
	}
	return nil
}

func (o *objects) applyOne(ctx context.Context, change spire.Change[*unstructured.Unstructured], dry []string) error {
	switch change.Action {
	case spire.Create:
		_, err := o.client.Resource(spire.Resource(change.Want.GetKind())).Create(ctx, change.Want, metav1.CreateOptions{
			DryRun: dry, FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict,
		})
		return err
	case spire.Update:
		next := change.Have.DeepCopy() // with its resourceVersion, so that nobody's change is lost
		next.Object["spec"] = change.Want.DeepCopy().Object["spec"]
		_, err := o.client.Resource(spire.Resource(next.GetKind())).Update(ctx, next, metav1.UpdateOptions{
			DryRun: dry, FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict,
		})
		return err
	case spire.Delete:
		uid, version := change.Have.GetUID(), change.Have.GetResourceVersion()
		err := o.client.Resource(spire.Resource(change.Have.GetKind())).Delete(ctx, change.Have.GetName(), metav1.DeleteOptions{
			DryRun: dry, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return nil
}

// explain returns err, which doing met, as one line with the cure.
func (o *objects) explain(err error, doing string) error {
	if isCRDMissing(err) {
		return fmt.Errorf("%s: the cluster at %s does not have the resources of spire-controller-manager: choose the cluster where that runs with --context, or work on the SPIRE server with --spire-server", doing, o.host)
	}
	return explainAPI(err, doing, "cluster", o.host)
}
