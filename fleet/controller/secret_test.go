package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/kit"
)

// edge1Secret is the Secret of agent edge-1 as it should be, then changed.
func edge1Secret(change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "cluster-edge-1",
			Namespace: "argocd",
			Labels: map[string]string{
				"argocd.argoproj.io/secret-type":           "cluster",
				"argocd-agent.argoproj-labs.io/agent-name": "edge-1",
				"env": "prod",
			},
			Annotations: map[string]string{
				"argocd.argoproj.io/skip-reconcile": "true",
				"managed-by":                        "argomesh",
			},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "argomesh-principal", Operation: metav1.ManagedFieldsOperationApply,
				FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:config":{},"f:name":{},"f:server":{}},` +
					`"f:metadata":{"f:annotations":{"f:argocd.argoproj.io/skip-reconcile":{},"f:managed-by":{}},` +
					`"f:labels":{"f:argocd-agent.argoproj-labs.io/agent-name":{},"f:argocd.argoproj.io/secret-type":{},"f:env":{}}}}`),
			}},
		},
		Data: map[string][]byte{
			"name":   []byte("edge-1"),
			"server": []byte("https://proxy:9090/agents/edge-1"),
			"config": []byte(`{}`),
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

// foreign is a cluster Secret someone else made.
func foreign(name, agentLabel, cluster, server string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		Data:       map[string][]byte{"server": []byte(server)},
	}
	if agentLabel != "" {
		s.Labels["argocd-agent.argoproj-labs.io/agent-name"] = agentLabel
	}
	if cluster != "" {
		s.Data["name"] = []byte(cluster)
	}
	return s
}

func TestPlanSecret(t *testing.T) {
	want := wantSecret(kit.Agent(t, "edge-1"), map[string]v1alpha1.LabelValue{"env": "prod"},
		ClusterServer("https://proxy:9090", kit.Agent(t, "edge-1")), []byte(`{}`))
	tests := map[string]struct {
		have   *corev1.Secret
		claims []*corev1.Secret
		want   secretPlan
	}{
		"an absent Secret is made": {
			want: secretPlan{action: secretCreate, ready: true},
		},
		"a Secret as it should be stays": {
			have: edge1Secret(nil),
			want: secretPlan{action: secretKeep, ready: true},
		},
		"what others add stays": {
			have: edge1Secret(func(s *corev1.Secret) {
				s.Labels["team"] = "a"
				s.Annotations["note"] = "x"
				s.Data["shard"] = []byte("1")
			}),
			want: secretPlan{action: secretKeep, ready: true},
		},
		"a cluster that somebody scoped to a project stays so": {
			have: edge1Secret(func(s *corev1.Secret) { s.Data["project"] = []byte("web") }),
			want: secretPlan{action: secretKeep, ready: true, project: "web"},
		},
		"what cannot be a project is none": {
			have: edge1Secret(func(s *corev1.Secret) { s.Data["project"] = []byte("a\xffb") }),
			want: secretPlan{action: secretKeep, ready: true},
		},
		"skip-reconcile that was removed comes back": {
			have: edge1Secret(func(s *corev1.Secret) { delete(s.Annotations, "argocd.argoproj.io/skip-reconcile") }),
			want: secretPlan{action: secretRestore, ready: true},
		},
		"a Secret whose mark was removed is still ours by its field manager": {
			have: edge1Secret(func(s *corev1.Secret) { delete(s.Annotations, "managed-by") }),
			want: secretPlan{action: secretRestore, ready: true},
		},
		"a Secret without managed fields is still ours by its mark": {
			have: edge1Secret(func(s *corev1.Secret) { s.ManagedFields = nil }),
			want: secretPlan{action: secretKeep, ready: true},
		},
		"a label that was removed comes back": {
			have: edge1Secret(func(s *corev1.Secret) { delete(s.Labels, "env") }),
			want: secretPlan{action: secretRestore, ready: true},
		},
		"a server that was changed comes back": {
			have: edge1Secret(func(s *corev1.Secret) { s.Data["server"] = []byte("https://elsewhere") }),
			want: secretPlan{action: secretRestore, ready: true},
		},
		"a label of ours that is no longer wanted goes": {
			have: edge1Secret(func(s *corev1.Secret) {
				s.Labels["old"] = "1"
				fields := s.ManagedFields[0].FieldsV1
				fields.SetRawString(strings.Replace(fields.GetRawString(), `"f:env":{}`, `"f:env":{},"f:old":{}`, 1))
			}),
			want: secretPlan{action: secretRestore, ready: true},
		},
		"a Secret of that name that somebody else made is not touched": {
			have: foreign("cluster-edge-1", "edge-1", "edge-1", "https://proxy:9090/agents/edge-1"),
			want: secretPlan{conflict: "Secret cluster-edge-1 exists and was not made by Argomesh"},
		},
		"no Secret is made beside one with the label": {
			claims: []*corev1.Secret{foreign("mine", "edge-1", "other", "https://other")},
			want:   secretPlan{conflict: "Secret mine has the label argocd-agent.argoproj-labs.io/agent-name=edge-1 of this agent"},
		},
		"no Secret is made beside those with the cluster name or server": {
			claims: []*corev1.Secret{
				foreign("two", "", "b", "https://proxy:9090/agents/edge-1/"),
				foreign("one", "", "edge-1", "https://a"),
			},
			want: secretPlan{conflict: "Secret one has the cluster name edge-1 of this agent; " +
				"Secret two has the server https://proxy:9090/agents/edge-1 of this agent"},
		},
		"one that is there is kept, and the conflict shown": {
			have:   edge1Secret(func(s *corev1.Secret) { delete(s.Labels, "env") }),
			claims: []*corev1.Secret{foreign("one", "", "edge-1", "https://a")},
			want: secretPlan{
				action: secretRestore, ready: true,
				conflict: "Secret one has the cluster name edge-1 of this agent",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := planSecret(want, tt.have, tt.claims)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(secretPlan{})); diff != "" {
				t.Errorf("planSecret() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimsAreFoundByTheIndex(t *testing.T) {
	claims := claimsOf(foreign("s", "edge-1", "", "https://proxy/agents/edge-1//"))
	want := []string{"label:edge-1", "name:https://proxy/agents/edge-1//", "server:https://proxy/agents/edge-1"}
	if diff := cmp.Diff(want, claims); diff != "" {
		t.Errorf("claimsOf() (-want +got):\n%s", diff)
	}
}
