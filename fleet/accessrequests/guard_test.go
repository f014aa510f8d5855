package accessrequests_test

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/fleet/accessrequests"
	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^TestRulesGolden$" -update .

// TestRulesGolden holds what the chart installs against what is checked here.
func TestRulesGolden(t *testing.T) {
	content, err := yaml.Marshal(accessrequests.Validations())
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../charts/argomesh-principal/files/access-requests.yaml", content)
}

var begin = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// guard is a policy and a binding as the chart has them.
func guard() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	name, fail := accessrequests.GuardName("argocd"), admissionv1.Fail
	return &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: begin}},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &fail, Validations: accessrequests.Validations(),
				MatchConstraints: &admissionv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, // as the API server defaults them
					ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule:       admissionv1.Rule{APIGroups: []string{"argomesh.io"}, APIVersions: []string{"*"}, Resources: []string{"accessrequests"}},
					}}},
				},
			},
		}, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: begin.Add(time.Second)}},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}
}

func TestCheckGuard(t *testing.T) {
	policy, binding := guard()
	if since, err := accessrequests.CheckGuard(policy, binding); err != nil || !since.Equal(begin.Add(time.Second)) {
		t.Errorf("as the chart has it: since %v, %v", since, err)
	}
	some := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, c := range map[string]struct {
		change func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding)
		says   string
	}{
		"a rule less": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations = p.Spec.Validations[1:]
		}, "lacks the rule"},
		"a rule that is another": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations[2].Expression += " || true"
		}, "lacks the rule"},
		"finalizers that stay": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations = p.Spec.Validations[:4]
		}, "finalizers"},
		"a failure that passes": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			ignore := admissionv1.Ignore
			p.Spec.FailurePolicy = &ignore
		}, "failurePolicy"},
		"a condition": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "never", Expression: "false"}}
		}, "conditions"},
		"parameters": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		}, "parameters"},
		"nothing that it matches": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints = nil
		}, "does not match"},
		"some namespaces": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.NamespaceSelector = some
		}, "does not match"},
		"some objects": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ObjectSelector = some
		}, "does not match"},
		"some left out": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ExcludeResourceRules = p.Spec.MatchConstraints.ResourceRules
		}, "does not match"},
		"updates alone": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
		}, "does not match"},
		"another resource": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"accessrequests/status"}
		}, "does not match"},
		"one name": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"a"}
		}, "does not match"},
		"what has no namespace": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			scope := admissionv1.ClusterScope
			p.Spec.MatchConstraints.ResourceRules[0].Scope = &scope
		}, "does not match"},
		"a binding of another": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "other"
		}, "binds another"},
		"a binding that warns": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
		}, "does not deny"},
		"a binding of some namespaces": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: some}
		}, "leaves requests out"},
		"a binding with parameters": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ParamRef = &admissionv1.ParamRef{Name: "a"}
		}, "leaves requests out"},
	} {
		policy, binding := guard()
		c.change(policy, binding)
		if _, err := accessrequests.CheckGuard(policy, binding); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
