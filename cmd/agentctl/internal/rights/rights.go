// Package rights asks which rights a user has, before anything is done that needs them.
package rights

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/mesh/spire"
)

// Right is one to do what a verb says to a resource.
type Right = authorizationv1.ResourceAttributes

// To are those to do what verbs say to a resource, of a namespace unless that is empty.
func To(verbs, group, resource, namespace string) (out []Right) {
	for verb := range strings.SplitSeq(verbs, ",") {
		out = append(out, Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
	}
	return out
}

// OfHelm are those by which Helm keeps its records, and one agentctl at a time works.
func OfHelm(namespace string) []Right {
	return slices.Concat(To("list,create,update", "", "secrets", namespace),
		To("get,create,update", "coordination.k8s.io", "leases", namespace))
}

// OfSPIRE are those to have pods registered with SPIRE, by the kinds that are named.
func OfSPIRE(kinds ...string) (out []Right) {
	for _, kind := range kinds {
		r := spire.Resource(kind)
		out = append(out, To("list,create,update", r.Group, r.Resource, "")...)
	}
	return out
}

// ToMake are those to make objects by server-side apply.
func ToMake(objects []*unstructured.Unstructured) (out []Right) {
	for _, o := range objects {
		r, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		for _, right := range To("create,patch", r.Group, r.Resource, o.GetNamespace()) {
			if !slices.Contains(out, right) {
				out = append(out, right)
			}
		}
	}
	return out
}

// OfRoles are some of those that the Roles and ClusterRoles among objects grant: of each rule those to its first
// resource.
func OfRoles(objects []*unstructured.Unstructured) (out []Right, err error) {
	for _, o := range objects {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole // which has the rules of a Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		for _, rule := range role.Rules {
			if len(rule.Resources) == 0 || len(rule.APIGroups) == 0 {
				continue
			}
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			for _, right := range To(strings.Join(rule.Verbs, ","), rule.APIGroups[0], resource, o.GetNamespace()) {
				right.Subresource = subresource
				if len(rule.ResourceNames) > 0 {
					right.Name = rule.ResourceNames[0]
				}
				out = append(out, right)
			}
		}
	}
	return out, nil
}

// Missing returns those rights that the user of a client does not have, as people write them.
func Missing(ctx context.Context, client kubernetes.Interface, where string, rights []Right) ([]string, error) {
	return missing(ctx, where, rights, func(ctx context.Context, r *Right) (bool, error) {
		ask := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r},
		}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	})
}

// Account is a service account.
type Account struct{ Namespace, Name string }

// MissingOf is Missing of a service account.
func MissingOf(ctx context.Context, client kubernetes.Interface, of Account, where string,
	rights []Right) ([]string, error) {
	const all = "system:serviceaccount"
	return missing(ctx, where, rights, func(ctx context.Context, r *Right) (bool, error) {
		ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               all + ":" + of.Namespace + ":" + of.Name,
			Groups:             []string{"system:authenticated", all + "s", all + "s:" + of.Namespace},
			ResourceAttributes: r,
		}}
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	})
}

// atOnce is how many rights are asked for at the same time.
const atOnce = 20

// missing returns those rights that allowed does not say are there, as people write them.
func missing(ctx context.Context, where string, rights []Right,
	allowed func(context.Context, *Right) (bool, error)) ([]string, error) {
	lacks := make([]string, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range rights {
		group.Go(func() error {
			is, err := allowed(ctx, &rights[i])
			if err == nil && !is {
				lacks[i] = textOf(rights[i], where)
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(lacks, func(text string) bool { return text == "" }), err
}

// textOf is a right as people write it.
func textOf(r Right, where string) string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text + " of the " + where
}
