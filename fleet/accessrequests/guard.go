package accessrequests

import (
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// GuardName is the name of the ValidatingAdmissionPolicy, and of its binding, of a hub in a
// namespace.
func GuardName(namespace string) string { return "argomesh-access-requests." + namespace }

// guardDelay is how long API servers may take until all of them apply a new policy.
const guardDelay = 5 * time.Second

// Validations are those of the policy: a request names the user of the call that creates it, and
// can be deleted. It cannot be changed, as its definition says, so no other call is looked at.
func Validations() []admissionv1.Validation {
	forbidden := metav1.StatusReasonForbidden
	same := func(field, none string) admissionv1.Validation {
		return admissionv1.Validation{
			Expression: fmt.Sprintf("(has(object.spec.user.%s) ? object.spec.user.%s : %s) == (has(request.userInfo.%s) ? request.userInfo.%s : %s)",
				field, field, none, field, field, none),
			Message: "spec.user." + field + " is not that of the caller: a person asks for herself alone",
			Reason:  &forbidden,
		}
	}
	return []admissionv1.Validation{
		same("username", "''"), same("uid", "''"), same("groups", "[]"), same("extra", "{}"),
		{
			Expression: "!has(object.metadata.finalizers) || object.metadata.finalizers.size() == 0",
			Message:    "metadata.finalizers is set: a request goes when its time is over", Reason: &forbidden,
		},
	}
}

// CheckGuard returns since when a policy and its binding have an API server say who made a request,
// or why they do not.
func CheckGuard(policy *admissionv1.ValidatingAdmissionPolicy,
	binding *admissionv1.ValidatingAdmissionPolicyBinding) (since time.Time, err error) {
	spec := policy.Spec
	for _, rule := range Validations() {
		if !slices.ContainsFunc(spec.Validations,
			func(v admissionv1.Validation) bool { return v.Expression == rule.Expression }) {
			return since, fmt.Errorf("it lacks the rule %q", rule.Expression)
		}
	}
	switch match := spec.MatchConstraints; {
	case spec.FailurePolicy != nil && *spec.FailurePolicy != admissionv1.Fail:
		return since, errors.New("its failurePolicy is not Fail")
	case spec.ParamKind != nil || len(spec.MatchConditions) > 0:
		return since, errors.New("it has parameters or conditions, so it may leave requests out")
	case match == nil || !everything(match.NamespaceSelector) || !everything(match.ObjectSelector) ||
		len(match.ExcludeResourceRules) > 0 || !slices.ContainsFunc(match.ResourceRules, covers):
		return since, errors.New("it does not match each creation of an AccessRequest")
	}
	switch bound := binding.Spec; {
	case bound.PolicyName != policy.Name:
		return since, errors.New("its binding binds another policy")
	case bound.ParamRef != nil || !everywhere(bound.MatchResources):
		return since, errors.New("its binding leaves requests out")
	case !slices.Contains(bound.ValidationActions, admissionv1.Deny):
		return since, errors.New("its binding does not deny")
	}
	since = policy.CreationTimestamp.Time
	if later := binding.CreationTimestamp.Time; later.After(since) {
		since = later
	}
	return since, nil
}

// everything reports whether a selector leaves nothing out.
func everything(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// everywhere reports whether a binding leaves nothing out.
func everywhere(m *admissionv1.MatchResources) bool {
	return m == nil || everything(m.NamespaceSelector) && everything(m.ObjectSelector) &&
		len(m.ExcludeResourceRules) == 0 &&
		(len(m.ResourceRules) == 0 || slices.ContainsFunc(m.ResourceRules, covers))
}

// covers reports whether a rule has each creation of an AccessRequest.
func covers(r admissionv1.NamedRuleWithOperations) bool {
	has := func(list []string, name string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, name)
	}
	return len(r.ResourceNames) == 0 && has(r.APIGroups, v1alpha1.GroupName) &&
		has(r.APIVersions, v1alpha1.SchemeGroupVersion.Version) &&
		(has(r.Resources, v1alpha1.AccessRequestResource.Resource) || slices.Contains(r.Resources, "*/*")) &&
		(r.Scope == nil || *r.Scope == admissionv1.AllScopes || *r.Scope == admissionv1.NamespacedScope) &&
		(slices.Contains(r.Operations, admissionv1.OperationAll) || slices.Contains(r.Operations, admissionv1.Create))
}
