package registration

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

// Objects is the Kubernetes API of a cluster with spire-controller-manager, as far as
// its objects are concerned.
type Objects struct {
	Client dynamic.Interface
	Host   string
}

// NewObjects opens the connection. Nothing is contacted yet.
func NewObjects(c *cli.Connection) (*Objects, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, cli.ExplainKubeconfig(err, c.Rules)
	}
	return &Objects{Client: client, Host: config.Host}, nil
}

// Kinds are those of the objects of a registration.
var Kinds = []string{spire.ClusterSPIFFEIDKind, spire.ClusterStaticEntryKind}

// Observe returns what spire.PlanObjects needs for the registration name.
func (o *Objects) Observe(ctx context.Context, name identity.AgentName,
	desired []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, kind := range Kinds {
		list, err := o.List(ctx, kind, spire.RegistrationLabel+"="+name.String())
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
		there, err := o.Client.Resource(spire.Resource(want.GetKind())).Get(ctx, want.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, o.Explain(err, "get "+want.GetKind())
		default:
			out = append(out, there)
		}
	}
	return out, nil
}

// List returns the objects of a kind that selector selects.
func (o *Objects) List(ctx context.Context, kind, selector string) ([]*unstructured.Unstructured, error) {
	list, err := o.Client.Resource(spire.Resource(kind)).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, o.Explain(err, "list "+spire.Resource(kind).Resource)
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Apply carries out plan and calls done with each change that is done. With dryRun the
// API server checks everything and stores nothing.
func (o *Objects) Apply(ctx context.Context, plan []diff.Change[*unstructured.Unstructured], dryRun bool,
	done func(diff.Change[*unstructured.Unstructured])) error {
	if err := spire.Refusals(plan); err != nil {
		return err
	}
	var dry []string
	if dryRun {
		dry = []string{metav1.DryRunAll}
	}
	for _, change := range plan {
		if err := o.applyOne(ctx, change, dry); err != nil {
			return o.Explain(err, change.Name)
		}
		done(change)
	}
	return nil
}

func (o *Objects) applyOne(ctx context.Context, change diff.Change[*unstructured.Unstructured], dry []string) error {
	switch change.Action {
	case diff.Create:
		_, err := o.Client.Resource(spire.Resource(change.Want.GetKind())).Create(ctx, change.Want, metav1.CreateOptions{
			DryRun: dry, FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict,
		})
		return err
	case diff.Update:
		next := change.Have.DeepCopy() // with its resourceVersion, so that no one's change is lost
		next.Object["spec"] = change.Want.DeepCopy().Object["spec"]
		_, err := o.Client.Resource(spire.Resource(next.GetKind())).Update(ctx, next, metav1.UpdateOptions{
			DryRun: dry, FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict,
		})
		return err
	case diff.Delete:
		uid, version := change.Have.GetUID(), change.Have.GetResourceVersion()
		err := o.Client.Resource(spire.Resource(change.Have.GetKind())).
			Delete(ctx, change.Have.GetName(), metav1.DeleteOptions{
				DryRun: dry, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return nil
}

// Explain returns err, which doing met, as one line with the cure.
func (o *Objects) Explain(err error, doing string) error {
	if cli.IsCRDMissing(err) {
		return fmt.Errorf("%s: the cluster at %s does not have the resources of spire-controller-manager: choose the cluster where that runs with --context, or work on the SPIRE server with --spire-server", doing, o.Host)
	}
	return cli.ExplainAPI(err, doing, "cluster", o.Host)
}
