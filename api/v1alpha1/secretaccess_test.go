package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Today's true and false stay what they are, and what a later release may say is read, and
// allows nothing.
func TestSecretAccess(t *testing.T) {
	for text, want := range map[string]v1alpha1.SecretsShown{
		`{"enabled":true}`:                    v1alpha1.SecretsOff,
		`{"enabled":true,"secrets":null}`:     v1alpha1.SecretsOff,
		`{"enabled":true,"secrets":false}`:    v1alpha1.SecretsOff,
		`{"enabled":true,"secrets":true}`:     v1alpha1.SecretsOn,
		`{"enabled":true,"secrets":"masked"}`: v1alpha1.SecretsMasked,
		`{"enabled":true,"secrets":"true"}`:   "unknown",
		`{"enabled":true,"secrets":"keys"}`:   "unknown",
		`{"enabled":true,"secrets":{"a":1}}`:  "unknown",
		`{"enabled":true,"secrets":1}`:        "unknown",
	} {
		var a v1alpha1.AgentAccess
		if err := json.Unmarshal([]byte(text), &a); err != nil || a.Secrets.Shown != want {
			t.Errorf("%s is read as %q, %v, want %q", text, a.Secrets.Shown, err, want)
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&a)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if on, found := fields["secrets"]; found && want == v1alpha1.SecretsOn && on != true {
			t.Errorf("%s becomes %v, a %T", text, on, on)
		}
		var back v1alpha1.AgentAccess
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &back); err != nil || back.Secrets.Shown != want {
			t.Errorf("%s comes back as %q, %v", text, back.Secrets.Shown, err)
		}
	}
	for want, a := range map[string]v1alpha1.AgentAccess{
		`{"enabled":false}`:                    {},
		`{"enabled":false,"secrets":true}`:     {Secrets: v1alpha1.SecretAccess{Shown: v1alpha1.SecretsOn}},
		`{"enabled":false,"secrets":"masked"}`: {Secrets: v1alpha1.SecretAccess{Shown: v1alpha1.SecretsMasked}},
	} {
		if text, err := json.Marshal(a); err != nil || string(text) != want {
			t.Errorf("it is written %s, %v, want %s", text, err, want)
		}
	}
}
