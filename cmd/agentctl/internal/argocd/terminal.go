package argocd

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

const (
	// settingsMap has the settings of Argo CD itself, which it reads as they change.
	settingsMap = "argocd-cm"
	// terminalKey is the one by which it offers terminals, which it does by no other value than terminalOn. Its
	// manifests have none. To whom it offers them its RBAC says, by "exec, create".
	terminalKey, terminalOn = "exec.enabled", "true"
	// terminalBefore is the annotation in which its own value is kept while it has ours: empty text when it had none.
	terminalBefore = "argomesh.io/exec.enabled-before"
)

// TerminalByHand says what a person sets in place of [OfferTerminal].
const TerminalByHand = `set exec.enabled: "true" in ConfigMap ` + settingsMap + `, by which Argo CD offers terminals`

// terminalChange is what becomes of the setting, and of the annotation that keeps its own value. nil takes one away.
type terminalChange struct{ value, before *string }

// OfferTerminal has Argo CD offer terminals, and keeps what its setting was. It returns what there is to tell: nothing
// where it offers them, and who has to do it where another tool manages the settings. In a dry run the API server
// checks the change and stores nothing.
func OfferTerminal(ctx context.Context, client kubernetes.Interface, namespace string, dryRun bool) ([]string, error) {
	cm, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, settingsMap, metav1.GetOptions{})
	if err != nil || useTerminal(cm) == nil {
		return nil, err
	}
	if by := Manager(cm); by != "" {
		return []string{fmt.Sprintf("ConfigMap %s is managed by %s, which would put a change back: by that %s", settingsMap,
			by, TerminalByHand)}, nil
	}
	if err := changeTerminal(ctx, client, cm, useTerminal, dryRun); err != nil {
		return nil, err
	}
	if dryRun {
		return []string{"ConfigMap " + settingsMap + " configured (server dry run)"}, nil
	}
	return []string{"ConfigMap " + settingsMap + ` has exec.enabled: "true", by which Argo CD offers terminals to those` +
		` whom its RBAC allows "exec, create"`}, nil
}

// WithdrawTerminal gives Argo CD the setting back that it had before [OfferTerminal], where it still has ours, and
// returns what there is to tell.
func WithdrawTerminal(ctx context.Context, client kubernetes.Interface, namespace string) ([]string, error) {
	cm, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, settingsMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return []string{"ConfigMap " + settingsMap + " may not be read: where \"agentctl hub install --terminal\" has" +
			" set exec.enabled in it, that stays"}, nil
	case err != nil || restoreTerminal(cm) == nil:
		return nil, err
	}
	if err := changeTerminal(ctx, client, cm, restoreTerminal, false); err != nil {
		return nil, err
	}
	return []string{"ConfigMap " + settingsMap + " has exec.enabled again as it was"}, nil
}

// useTerminal returns the change by which terminals are offered; nil where they are.
func useTerminal(cm *corev1.ConfigMap) *terminalChange {
	on, before := terminalOn, cm.Data[terminalKey]
	if before == on {
		return nil
	}
	return &terminalChange{value: &on, before: &before}
}

// restoreTerminal returns the change that takes our value out again; nil where it is not ours, or someone has set
// another since.
func restoreTerminal(cm *corev1.ConfigMap) *terminalChange {
	before, ours := cm.Annotations[terminalBefore]
	switch {
	case !ours || cm.Data[terminalKey] != terminalOn:
		return nil
	case before == "":
		return &terminalChange{}
	}
	return &terminalChange{value: &before}
}

// changeTerminal carries out what decide says of the settings. When they have changed since they were read, they are
// read and decided on again.
func changeTerminal(ctx context.Context, client kubernetes.Interface, cm *corev1.ConfigMap,
	decide func(*corev1.ConfigMap) *terminalChange, dryRun bool) error {
	configs := client.CoreV1().ConfigMaps(cm.Namespace)
	opts := metav1.PatchOptions{FieldManager: "agentctl"}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		change := decide(cm)
		if change == nil {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{
				"resourceVersion": cm.ResourceVersion, // of another one it is a conflict
				"annotations":     map[string]*string{terminalBefore: change.before},
			},
			"data": map[string]*string{terminalKey: change.value},
		})
		if err != nil {
			return err
		}
		_, err = configs.Patch(ctx, cm.Name, types.MergePatchType, patch, opts)
		if apierrors.IsConflict(err) {
			if fresh, getErr := configs.Get(ctx, cm.Name, metav1.GetOptions{}); getErr == nil {
				cm = fresh
			}
		}
		return err
	})
}
