//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/harness"
)

// reported is a check that the hub's object says why the spoke did not take it.
func reported(t *testing.T, w *world, name, text string) error {
	o, err := w.onHub(managed).Get(t.Context(), name, metav1.GetOptions{})
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
	w, ctx := theWorld(t), t.Context()
	err := w.edge1.ApplyYAML(ctx, []byte(`apiVersion: admissionregistration.k8s.io/v1
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
	eventually(t, "the policy is in force on the spoke", func() error {
		probe := w.idle("probe", harness.ArgoCDNamespace, "")
		probe.SetLabels(map[string]string{"forbidden": "yes"})
		_, err := w.onSpoke(managed).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the probe was answered by %w", errors.Join(err, errors.New("no refusal")))
	})

	refused := w.idle("refused", managed, managed)
	refused.SetLabels(map[string]string{"forbidden": "yes"})
	create(t, w.onHub(managed), refused)
	large := w.idle("large", managed, managed)
	// More than the spoke's etcd takes (spokeMaxBytes), less than the hub's does and than one
	// Application may have (limits.application_bytes).
	large.Object["spec"].(map[string]any)["info"] = []any{
		map[string]any{"name": "padding", "value": strings.Repeat("x", spokeMaxBytes*3/2)},
	}
	create(t, w.onHub(managed), large)
	create(t, w.onHub(managed), w.idle("beside", managed, managed))

	eventually(t, "what comes after is not delayed", func() error {
		_, err := w.onSpoke(managed).Get(ctx, "beside", metav1.GetOptions{})
		return err
	})
	eventually(t, "the hub's object says why", func() error { return reported(t, w, "refused", "takes no forbidden Application") })
	eventually(t, "the hub says that the large one is too large", func() error { return reported(t, w, "large", "too large") })
	eventually(t, "the Agent names what is parked", func() error {
		a, err := w.hub.Resource(schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}, harness.ArgoCDNamespace).
			Get(ctx, managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
		if text := fmt.Sprint(list); !strings.Contains(text, "name:refused") || !strings.Contains(text, "name:large") {
			return fmt.Errorf("parked is %v", list)
		}
		return nil
	})

	patch(t, w.onHub(managed), "refused", map[string]any{"metadata": map[string]any{"labels": map[string]any{"forbidden": nil}}})
	eventually(t, "a version that the spoke takes arrives", func() error {
		_, err := w.onSpoke(managed).Get(ctx, "refused", metav1.GetOptions{})
		return err
	})
	eventually(t, "the condition is gone", func() error {
		if reported(t, w, "refused", "") == nil {
			return errors.New("the condition is still there")
		}
		return nil
	})

	// An Application whose destination is another cluster is not sent, and says so.
	create(t, w.onHub(managed), w.idle("elsewhere", managed, autonomous))
	eventually(t, "a foreign destination is reported", func() error { return reported(t, w, "elsewhere", "destination") })
	if err := gone(ctx, w.onSpoke(managed), "elsewhere"); err != nil {
		t.Error(err)
	}
}
