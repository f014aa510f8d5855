//go:build linux

package sync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// ReportedIs is a check that the hub's object says why the spoke did not take it.
func ReportedIs(t *testing.T, w *env.Argo, name, text string) error {
	o, err := w.OnHub(env.Managed).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		m, _ := c.(map[string]any)
		if m["type"] == "ArgomeshError" && strings.Contains(fmt.Sprint(m["message"]), text) {
			return nil
		}
	}
	return fmt.Errorf("no condition ArgomeshError with %q in %v", text, list)
}

func TestRefusedBySpoke(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	err := w.Edge1.ApplyYAML(ctx, []byte(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-forbidden-applications}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [argoproj.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [applications]}
  validations:
  - expression: "!has(object.metadata.labels) || !('forbidden' in object.metadata.labels)"
    message: this spoke takes no forbidden Application
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-forbidden-applications}
spec: {policyName: no-forbidden-applications, validationActions: [Deny]}
`))
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the policy is in force on the spoke", func() error {
		probe := w.Idle("probe", harness.ArgoCDNamespace, "")
		probe.SetLabels(map[string]string{"forbidden": "yes"})
		_, err := w.OnSpoke(env.Managed).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the probe was answered by %w", errors.Join(err, errors.New("no refusal")))
	})

	refused := w.Idle("refused", env.Managed, env.Managed)
	refused.SetLabels(map[string]string{"forbidden": "yes"})
	env.Create(t, w.OnHub(env.Managed), refused)
	large := w.Idle("large", env.Managed, env.Managed)
	// More than the spoke's etcd takes (spokeMaxBytes), less than the hub's does and than one
	// Application may have (limits.application_bytes).
	large.Object["spec"].(map[string]any)["info"] = []any{
		map[string]any{"name": "padding", "value": strings.Repeat("x", env.SpokeMaxBytes*3/2)},
	}
	env.Create(t, w.OnHub(env.Managed), large)
	env.Create(t, w.OnHub(env.Managed), w.Idle("beside", env.Managed, env.Managed))

	env.Eventually(t, "what comes after is not delayed", func() error {
		_, err := w.OnSpoke(env.Managed).Get(ctx, "beside", metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "the hub's object says why", func() error { return ReportedIs(t, w, "refused", "takes no forbidden Application") })
	env.Eventually(t, "the hub says that the large one is too large", func() error { return ReportedIs(t, w, "large", "too large") })
	env.Eventually(t, "the Agent names what is parked", func() error {
		a, err := w.Hub.Resource(schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}, harness.ArgoCDNamespace).
			Get(ctx, env.Managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
		if text := fmt.Sprint(list); !strings.Contains(text, "name:refused") || !strings.Contains(text, "name:large") {
			return fmt.Errorf("parked is %v", list)
		}
		return nil
	})

	env.Patch(t, w.OnHub(env.Managed), "refused", map[string]any{"metadata": map[string]any{"labels": map[string]any{"forbidden": nil}}})
	env.Eventually(t, "a version that the spoke takes arrives", func() error {
		_, err := w.OnSpoke(env.Managed).Get(ctx, "refused", metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "the condition is gone", func() error {
		if ReportedIs(t, w, "refused", "") == nil {
			return errors.New("the condition is still there")
		}
		return nil
	})

	// An Application whose destination is another cluster is not sent, and says so.
	env.Create(t, w.OnHub(env.Managed), w.Idle("elsewhere", env.Managed, env.Autonomous))
	env.Eventually(t, "a foreign destination is reported", func() error { return ReportedIs(t, w, "elsewhere", "destination") })
	if err := env.Gone(ctx, w.OnSpoke(env.Managed), "elsewhere"); err != nil {
		t.Error(err)
	}
}
