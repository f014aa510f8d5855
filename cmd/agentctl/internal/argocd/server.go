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

// Flag is one of argocd-server that it has from us.
type Flag struct {
	// Name is without its dashes, and Value the one that we give it.
	Name, Value string
	// Before is the annotation of the Deployment in which its own value is kept while it has ours: empty text when
	// it had none.
	Before string
}

// RedisAt is the flag by which argocd-server uses the Redis at an address.
func RedisAt(address string) Flag { return Flag{"redis", address, "argomesh.io/redis-before"} }

// AnyNamespace is the flag by which argocd-server takes Applications of all namespaces.
func AnyNamespace() Flag {
	return Flag{namespacesFlag, "*", "argomesh.io/" + namespacesFlag + "-before"}
}

const namespacesFlag = "application-namespaces"

// Change is what becomes of argocd-server.
type Change struct {
	// Args are its new arguments; nil when nothing changes.
	Args []string
	// Annotations are those of the Deployment that change; nil takes one away.
	Annotations map[string]*string
}

// Use returns the change with which argocd-server has our flags. Its other arguments stay.
func Use(d *appsv1.Deployment, flags ...Flag) Change {
	var c Change
	args := argsOf(d)
	for _, f := range flags {
		before := flag(args, f.Name)
		if before == f.Value {
			continue
		}
		args = append(without(args, f.Name), f.text())
		c.set(args, f.Before, &before)
	}
	return c
}

// Restore returns the change that takes our flags out again, where argocd-server still has them; what someone has
// set since stays.
func Restore(d *appsv1.Deployment, flags ...Flag) Change {
	var c Change
	args := argsOf(d)
	for _, f := range flags {
		before, ours := d.Annotations[f.Before]
		if !ours || flag(args, f.Name) != f.Value {
			continue
		}
		args = without(args, f.Name)
		if before != "" {
			args = append(args, "--"+f.Name+"="+before)
		}
		c.set(args, f.Before, nil)
	}
	return c
}

func (f Flag) text() string { return "--" + f.Name + "=" + f.Value }

// Texts are flags as arguments.
func Texts(flags []Flag) (out []string) {
	for _, f := range flags {
		out = append(out, f.text())
	}
	return out
}

func (c *Change) set(args []string, annotation string, value *string) {
	if c.Annotations == nil {
		c.Annotations = map[string]*string{}
	}
	c.Args, c.Annotations[annotation] = args, value
}

func argsOf(d *appsv1.Deployment) []string {
	pod := d.Spec.Template.Spec
	return pod.Containers[Container(pod)].Args
}

// without returns the arguments without a flag and its value, in a slice of their own.
func without(args []string, name string) []string {
	out := []string{}
	for i := 0; i < len(args); i++ {
		switch {
		case strings.HasPrefix(args[i], "--"+name+"="):
		case args[i] == "--"+name && i+1 < len(args):
			i++
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// Has reports whether argocd-server has a flag as ours is.
func Has(d *appsv1.Deployment, f Flag) bool { return flag(argsOf(d), f.Name) == f.Value }

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
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": d.ResourceVersion, // of another one it is a conflict
			"annotations":     c.Annotations,
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
