package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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

// Do carries a change out; in a dry run the API server checks it and stores nothing. It is refused
// when the Deployment has changed since it was read.
func (c Change) Do(ctx context.Context, client kubernetes.Interface, d *appsv1.Deployment, dryRun bool) error {
	if c.Args == nil {
		return nil
	}
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	steps := []step{
		{Op: "test", Path: "/metadata/resourceVersion", Value: d.ResourceVersion},
		{
			Op: "add", Value: slices.Clone(c.Args),
			Path: fmt.Sprintf("/spec/template/spec/containers/%d/args", Container(d.Spec.Template.Spec)),
		},
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(RedisBefore, "/", "~1")
	switch {
	case c.Before == nil:
		steps = append(steps, step{Op: "remove", Path: path})
	case d.Annotations == nil:
		steps = append(steps,
			step{Op: "add", Path: "/metadata/annotations", Value: map[string]string{RedisBefore: *c.Before}})
	default:
		steps = append(steps, step{Op: "add", Path: path, Value: *c.Before})
	}
	patch, err := json.Marshal(steps)
	if err != nil {
		return err
	}
	opts := metav1.PatchOptions{FieldManager: "agentctl"}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	_, err = client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.JSONPatchType, patch, opts)
	return err
}

// UsesHost reports whether argocd-server has a Redis on a host, whatever its port, by its flag.
func UsesHost(d *appsv1.Deployment, host string) bool {
	at, _, err := net.SplitHostPort(flag(argsOf(d), "redis"))
	return err == nil && (at == host || strings.HasPrefix(at, host+"."))
}
