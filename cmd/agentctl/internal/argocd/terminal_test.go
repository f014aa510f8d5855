package argocd

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// settings are Argo CD's.
func settings(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: settingsMap}, Data: data}
}

// read returns the settings that there are.
func read(t *testing.T, client *fake.Clientset) *corev1.ConfigMap {
	t.Helper()
	cm, err := client.CoreV1().ConfigMaps("argocd").Get(t.Context(), settingsMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// Argo CD is given the setting, and what it had before comes back, unless it has another one by then.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]map[string]string{
		"no settings": nil, "others": {"url": "https://argocd.example"}, "off": {terminalKey: "false"}, "on": {terminalKey: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, client := t.Context(), fake.NewClientset(settings(own))
			told, err := OfferTerminal(ctx, client, "argocd", false)
			if on := own[terminalKey] == terminalOn; err != nil || (len(told) == 0) != on {
				t.Errorf("it says %q, %v", told, err)
			}
			state, err := Observe(ctx, client, "argocd")
			if cm := read(t, client); err != nil || !state.Terminal || cm.Data["url"] != own["url"] {
				t.Errorf("it has %v, %v", cm.Data, err)
			}
			if told, err := OfferTerminal(ctx, client, "argocd", false); err != nil || len(told) > 0 {
				t.Errorf("a second time it says %q, %v", told, err)
			}
			if _, err := WithdrawTerminal(ctx, client, "argocd"); err != nil {
				t.Fatal(err)
			}
			if cm := read(t, client); !maps.Equal(cm.Data, own) || len(cm.Annotations) > 0 {
				t.Errorf("again it has %v and annotations %v, want %v", cm.Data, cm.Annotations, own)
			}
		})
	}
	ctx, client := t.Context(), fake.NewClientset(settings(nil))
	if _, err := OfferTerminal(ctx, client, "argocd", false); err != nil {
		t.Fatal(err)
	}
	cm := read(t, client)
	cm.Data[terminalKey] = "false"
	if _, err := client.CoreV1().ConfigMaps("argocd").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if told, err := WithdrawTerminal(ctx, client, "argocd"); err != nil || len(told) > 0 || read(t, client).Data[terminalKey] != "false" {
		t.Errorf("what someone has set since becomes %v, and it says %q, %v", read(t, client).Data, told, err)
	}
}

// What another tool manages is not changed, and a setting that changed meanwhile is decided on again.
func TestTerminalOfOthers(t *testing.T) {
	t.Parallel()
	managed := settings(nil)
	managed.Annotations = map[string]string{"meta.helm.sh/release-name": "argocd"}
	client := fake.NewClientset(managed)
	told, err := OfferTerminal(t.Context(), client, "argocd", false)
	if err != nil || len(told) != 1 || !strings.Contains(told[0], "managed by helm") || !strings.Contains(told[0], TerminalByHand) || len(read(t, client).Data) > 0 {
		t.Errorf("of settings that helm manages it says %q, %v, and they are %v", told, err, read(t, client).Data)
	}
	client = fake.NewClientset(settings(nil))
	tries := 0
	client.PrependReactor("patch", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
		if tries++; tries == 1 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, settingsMap, nil)
		}
		return false, nil, nil
	})
	if _, err := OfferTerminal(t.Context(), client, "argocd", false); err != nil || tries != 2 || read(t, client).Data[terminalKey] != terminalOn {
		t.Errorf("after a conflict it tried %d times: %v", tries, err)
	}
	if told, err := WithdrawTerminal(t.Context(), fake.NewClientset(), "argocd"); err != nil || len(told) > 0 {
		t.Errorf("without settings it says %q, %v", told, err)
	}
	if _, err := OfferTerminal(t.Context(), fake.NewClientset(), "argocd", false); !apierrors.IsNotFound(err) {
		t.Errorf("without settings it says %v", err)
	}
}
