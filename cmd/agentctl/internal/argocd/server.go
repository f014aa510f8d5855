package argocd

import (
	"context"
	"encoding/json"
	"net"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// RedisBefore is the annotation of argocd-server's Deployment in which its own flag --redis is
// kept while it has ours: the value of the flag, or nothing when it had none.
const RedisBefore = "argomesh.io/redis-before"

// Change is what becomes of the arguments of argocd-server.
type Change struct {
	// Args are the new ones; nil when nothing changes.
	Args []string
	// Before is the value of RedisBefore; nil takes the annotation away.
	Before *string
}

// UseRedis returns the change with which argocd-server uses the Redis at an address. Its other
// arguments stay.
func UseRedis(d *appsv1.Deployment, address string) Change {
	args := argsOf(d)
	if flag(args, "redis") == address {
		return Change{}
	}
	before := flag(args, "redis")
	return Change{Args: append(withoutRedis(args), "--redis="+address), Before: &before}
}

// Restore returns the change that takes our Redis out again, where argocd-server still has it;
// what someone has set since stays.
func Restore(d *appsv1.Deployment, address string) Change {
	args := argsOf(d)
	before, ours := d.Annotations[RedisBefore]
	if !ours || flag(args, "redis") != address {
		return Change{}
	}
	args = withoutRedis(args)
	if before != "" {
		args = append(args, "--redis="+before)
	}
	return Change{Args: args}
}

func argsOf(d *appsv1.Deployment) []string {
	pod := d.Spec.Template.Spec
	return pod.Containers[Container(pod)].Args
}

// withoutRedis returns the arguments without the flag --redis and its value, in a slice of their
// own.
func withoutRedis(args []string) []string {
	out := []string{}
	for i := 0; i < len(args); i++ {
		switch {
		case strings.HasPrefix(args[i], "--redis="):
		case args[i] == "--redis" && i+1 < len(args):
			i++
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// Uses reports whether argocd-server has the Redis at an address by its flag.
func Uses(d *appsv1.Deployment, address string) bool { return flag(argsOf(d), "redis") == address }

// Apply carries out what decide says of a Deployment; in a dry run the API server checks it and stores
// nothing. When the Deployment has changed since it was read, it is read and decided on again.
func Apply(ctx context.Context, client kubernetes.Interface, d *appsv1.Deployment,
	decide func(*appsv1.Deployment) Change, dryRun bool) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := decide(d).patch(ctx, client, d, dryRun)
		if apierrors.IsConflict(err) {
			if fresh, getErr := client.AppsV1().Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{}); getErr == nil {
				d = fresh
			}
		}
		return err
	})
}

// patch carries a change out on a Deployment as it was read.
func (c Change) patch(ctx context.Context, client kubernetes.Interface, d *appsv1.Deployment, dryRun bool) error {
	if c.Args == nil {
		return nil
	}
	pod := d.Spec.Template.Spec
	var before any // null takes it away
	if c.Before != nil {
		before = *c.Before
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": d.ResourceVersion, // of another one it is a conflict
			"annotations":     map[string]any{RedisBefore: before},
		},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": pod.Containers[Container(pod)].Name, "args": c.Args},
		}}}},
	})
	if err != nil {
		return err
	}
	opts := metav1.PatchOptions{FieldManager: "agentctl"}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	_, err = client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.StrategicMergePatchType, patch, opts)
	return err
}

// UsesHost reports whether argocd-server has a Redis on a host, whatever its port, by its flag.
func UsesHost(d *appsv1.Deployment, host string) bool {
	at, _, err := net.SplitHostPort(flag(argsOf(d), "redis"))
	return err == nil && (at == host || strings.HasPrefix(at, host+"."))
}
