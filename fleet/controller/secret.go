package controller

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// fieldManager owns, by server-side apply, the fields this package writes.
const fieldManager = "argomesh-principal"

// The parts of a cluster Secret that Argo CD, or users of argocd-agent, know.
const (
	labelSecretType    = "argocd.argoproj.io/secret-type"
	secretTypeCluster  = "cluster"
	labelAgentName     = "argocd-agent.argoproj-labs.io/agent-name"
	annotationSkip     = "argocd.argoproj.io/skip-reconcile"
	annotationManaged  = "managed-by"
	managedByArgomesh  = "argomesh"
	dataName           = "name"
	dataServer         = "server"
	dataConfig         = "config"
	secretNamePrefix   = "cluster-"
	dataProject        = "project" // people's: anyone who sets it scopes the cluster to a project
	agentsPathOfServer = "/agents/"
)

// secretName returns the name of an agent's cluster Secret.
func secretName(agent identity.AgentName) string { return secretNamePrefix + agent.String() }

// ClusterServer returns the address Argo CD has for the cluster of an agent, whose
// resource proxy is at proxyURL.
func ClusterServer(proxyURL string, agent identity.AgentName) string {
	return strings.TrimRight(proxyURL, "/") + agentsPathOfServer + agent.String()
}

// wantedSecret is what a cluster Secret must hold. What else is in it belongs to
// others and stays.
type wantedSecret struct {
	agent       identity.AgentName
	labels      map[string]string
	annotations map[string]string
	data        map[string][]byte
}

func wantSecret(agent identity.AgentName, labels map[string]v1alpha1.LabelValue, server string,
	config []byte) wantedSecret {
	return wantedSecret{
		agent:  agent,
		labels: ClusterLabels(agent, labels),
		annotations: map[string]string{
			annotationSkip:    "true",
			annotationManaged: managedByArgomesh,
		},
		data: map[string][]byte{
			dataName:   []byte(agent.String()),
			dataServer: []byte(server),
			dataConfig: config,
		},
	}
}

// ClusterLabels returns the labels that the cluster Secret of an agent has from us, by which
// the cluster generator of an ApplicationSet selects it: those of spec.labels among them.
func ClusterLabels(agent identity.AgentName, labels map[string]v1alpha1.LabelValue) map[string]string {
	out := make(map[string]string, len(labels)+2)
	for key, value := range labels {
		out[key] = string(value)
	}
	out[labelSecretType] = secretTypeCluster
	out[labelAgentName] = agent.String()
	return out
}

// equal reports whether two wanted Secrets are the same.
func (w wantedSecret) equal(other wantedSecret) bool {
	return w.agent == other.agent && maps.Equal(w.labels, other.labels) &&
		maps.Equal(w.annotations, other.annotations) && maps.EqualFunc(w.data, other.data, bytes.Equal)
}

// heldBy reports whether have has all that w asks for, and nothing of ours that w
// no longer asks for.
func (w wantedSecret) heldBy(have *corev1.Secret) bool {
	for key, value := range w.labels {
		if got, found := have.Labels[key]; !found || got != value {
			return false
		}
	}
	for key, value := range w.annotations {
		if have.Annotations[key] != value {
			return false
		}
	}
	for key, value := range w.data {
		if !bytes.Equal(have.Data[key], value) {
			return false
		}
	}
	for _, key := range ownedLabels(have) {
		if _, wanted := w.labels[key]; !wanted {
			return false
		}
	}
	return true
}

// usableIn reports whether Argo CD finds the agent's cluster by have, even if
// other fields are not as they should be.
func (w wantedSecret) usableIn(have *corev1.Secret) bool {
	return have.Labels[labelSecretType] == secretTypeCluster && clusterName(have) == w.agent.String() &&
		clusterServer(have) == string(w.data[dataServer])
}

// applyObject returns the body of the server-side apply. When over is not nil,
// the apply fails with a conflict unless the Secret is still that one.
func (w wantedSecret) applyObject(namespace string, over *corev1.Secret) *unstructured.Unstructured {
	data := make(map[string]any, len(w.data))
	for key, value := range w.data {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"data":       data,
	}}
	obj.SetName(secretName(w.agent))
	obj.SetNamespace(namespace)
	obj.SetLabels(w.labels)
	obj.SetAnnotations(w.annotations)
	if over != nil {
		obj.SetUID(over.UID)
		obj.SetResourceVersion(over.ResourceVersion)
	}
	return obj
}

// secretAction is what is to be done about a cluster Secret.
type secretAction int

const (
	secretKeep secretAction = iota
	secretCreate
	secretRestore // ours, and not as it should be
)

// secretPlan is the outcome of planSecret.
type secretPlan struct {
	action secretAction
	// ready says whether the Secret is as wanted once action is done.
	ready bool
	// problem says why it is not ready, when no conflict is the reason.
	problem string
	// conflict names the Secrets that are in the way; empty when there are none.
	conflict string
	// project is that to which the Secret scopes the cluster; empty for none.
	project string
}

// planSecret says what to do so that have, nil when absent, becomes what is
// wanted. The claims are the other cluster Secrets of the namespace that have the
// agent's label, cluster name or server. None of those is ever touched, and no
// Secret is made beside them, since Argo CD refuses a cluster name that two
// Secrets have.
func planSecret(want wantedSecret, have *corev1.Secret, claims []*corev1.Secret) secretPlan {
	if have != nil && !isOurs(have) {
		return secretPlan{conflict: fmt.Sprintf("Secret %s exists and was not made by Argomesh", have.Name)}
	}
	plan := secretPlan{ready: true, conflict: describeClaims(want, claims)}
	if have != nil {
		plan.project = clusterProject(have)
	}
	switch {
	case have == nil && plan.conflict != "":
		plan.ready = false
	case have == nil:
		plan.action = secretCreate
	case !want.heldBy(have):
		plan.action = secretRestore
	}
	return plan
}

func describeClaims(want wantedSecret, claims []*corev1.Secret) string {
	var out []string
	for _, s := range claims {
		var what []string
		if s.Labels[labelAgentName] == want.agent.String() {
			what = append(what, "label "+labelAgentName+"="+want.agent.String())
		}
		if clusterName(s) == want.agent.String() {
			what = append(what, "cluster name "+want.agent.String())
		}
		if server := clusterServer(s); server == string(want.data[dataServer]) {
			what = append(what, "server "+server)
		}
		if len(what) > 0 {
			out = append(out, fmt.Sprintf("Secret %s has the %s of this agent", s.Name, strings.Join(what, ", ")))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// isOurs reports whether we made s: it says so, or, when someone removed that,
// the API server remembers that we applied it.
func isOurs(s *corev1.Secret) bool {
	return s.Annotations[annotationManaged] == managedByArgomesh || appliedByUs(s) != nil
}

// appliedByUs returns the entry of s.managedFields for our applies, nil when
// there is none.
func appliedByUs(s *corev1.Secret) *metav1.ManagedFieldsEntry {
	for i := range s.ManagedFields {
		entry := &s.ManagedFields[i]
		if entry.Manager == fieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return entry
		}
	}
	return nil
}

// ownedLabels returns the labels of s that we applied.
func ownedLabels(s *corev1.Secret) []string {
	entry := appliedByUs(s)
	if entry == nil || entry.FieldsV1 == nil {
		return nil
	}
	fields := &fieldpath.Set{}
	if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil // a form we do not know: the labels we want are kept all the same
	}
	var out []string
	labels := fields.WithPrefix(fieldpath.PathElement{FieldName: new("metadata")}).
		WithPrefix(fieldpath.PathElement{FieldName: new("labels")})
	for path := range labels.All() {
		if len(path) == 1 && path[0].FieldName != nil {
			out = append(out, *path[0].FieldName)
		}
	}
	return out
}

// clusterName returns the name Argo CD gives the cluster of s.
func clusterName(s *corev1.Secret) string {
	if name := string(s.Data[dataName]); name != "" {
		return name
	}
	return string(s.Data[dataServer])
}

// clusterProject returns the project to which s scopes its cluster; empty for none. What
// cannot be the name of one is that of none.
func clusterProject(s *corev1.Secret) string {
	name := string(s.Data[dataProject])
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

// clusterServer returns the server of s as Argo CD reads it.
func clusterServer(s *corev1.Secret) string {
	return strings.TrimRight(string(s.Data[dataServer]), "/")
}
