package accessrequests

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

var (
	policies = admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	bindings = admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
	reviews  = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
)

// AccessSubresource is the subresource of Agents of which a person must have the verb create.
// There is no such subresource; it is a word for roles.
const AccessSubresource = "access"

// facts reads what the answer to a request depends on.
func (r *Requests) facts(ctx context.Context, request *v1alpha1.AccessRequest) (f Facts, err error) {
	if f, err = r.guard(ctx); err != nil || f.Guard != nil {
		return f, err
	}
	if f.Allowed, f.Why, err = r.review(ctx, request); err != nil || !f.Allowed {
		return f, err
	}
	name, err := identity.ParseAgentName(request.Spec.Agent)
	if err != nil {
		return f, nil //nolint:nilerr // there is no agent of such a name
	}
	if agent, known := r.cfg.Agent(name); known {
		f.Agent = &agent
	}
	return f, nil
}

// guard looks at the policy of now. That it is not there, or not as it must be, is a fact; that it
// cannot be read is an error.
func (r *Requests) guard(ctx context.Context) (f Facts, err error) {
	name := GuardName(r.cfg.Namespace)
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	for _, one := range []struct {
		resource schema.GroupVersionResource
		into     any
	}{{policies, &policy}, {bindings, &binding}} {
		err := r.read(ctx, one.resource, name, one.into)
		if apierrors.IsNotFound(err) {
			f.Guard = errors.New("it, or its binding, is not there")
			return f, nil
		}
		if err != nil {
			return f, fmt.Errorf("get %s %s: %w", one.resource.Resource, name, err)
		}
	}
	f.GuardedSince, f.Guard = CheckGuard(&policy, &binding)
	return f, nil
}

func (r *Requests) read(ctx context.Context, resource schema.GroupVersionResource, name string, into any) error {
	obj, err := r.cfg.Client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into)
}

// review asks the hub's authorizer whether the person may create agents/access of the Agent.
func (r *Requests) review(ctx context.Context, request *v1alpha1.AccessRequest) (allowed bool, why string, err error) {
	user := request.Spec.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.cfg.Namespace, Verb: "create", Group: v1alpha1.GroupName,
				Version: v1alpha1.SchemeGroupVersion.Version, Resource: v1alpha1.AgentResource.Resource,
				Subresource: AccessSubresource, Name: request.Spec.Agent,
			},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&review)
	if err != nil {
		return false, "", err
	}
	obj, err := r.cfg.Client.Resource(reviews).Create(ctx, &unstructured.Unstructured{Object: content},
		metav1.CreateOptions{})
	if err != nil {
		return false, "", fmt.Errorf("ask whether %s may: %w", user.Username, err)
	}
	var answer authorizationv1.SubjectAccessReview
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &answer); err != nil {
		return false, "", err
	}
	return answer.Status.Allowed && !answer.Status.Denied, answer.Status.Reason, nil
}
