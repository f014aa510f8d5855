package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// ours selects what the charts install.
const ours = "app.kubernetes.io/name in (argomesh-principal, argomesh-agent)"

// logLines bounds one log, in lines from its end.
const logLines = 5000

// kind is one kind of objects that goes into the archive.
type kind struct {
	resource schema.GroupVersionResource
	selector string
	// everywhere says that the kind has no namespace.
	everywhere bool
}

func kinds() []kind {
	of := func(group, plural string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
	}
	const rbac, admission = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	return []kind{
		{resource: v1alpha1.AgentResource},
		{resource: of("apps", "deployments"), selector: ours},
		{resource: of("", "pods"), selector: ours},
		{resource: of("", "services"), selector: ours},
		{resource: of("", "configmaps"), selector: ours},
		{resource: of("", "serviceaccounts"), selector: ours},
		{resource: of("networking.k8s.io", "networkpolicies"), selector: ours},
		{resource: of("policy", "poddisruptionbudgets"), selector: ours},
		{resource: of("coordination.k8s.io", "leases")},
		{resource: of(rbac, "roles"), selector: ours},
		{resource: of(rbac, "rolebindings"), selector: ours},
		{resource: of(rbac, "clusterroles"), selector: ours, everywhere: true},
		{resource: of(rbac, "clusterrolebindings"), selector: ours, everywhere: true},
		{resource: of(admission, "validatingadmissionpolicies"), selector: ours, everywhere: true},
		{resource: of(admission, "validatingadmissionpolicybindings"), selector: ours, everywhere: true},
		{resource: of("", "events")},
	}
}

// collector reads one side. What cannot be read is a line of problems, and the rest goes on.
type collector struct {
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
	problems  []string
}

func (c *collector) problem(what string, err error) {
	c.problems = append(c.problems, what+": "+err.Error())
}

// secrets returns the values of all Secrets of the namespace, which are kept in memory alone.
// known is false when they cannot be read.
func (c *collector) secrets(ctx context.Context) (values [][]byte, known bool) {
	list, err := c.client.CoreV1().Secrets(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.problem("secrets", err)
		return nil, false
	}
	for i := range list.Items {
		for _, value := range list.Items[i].Data {
			values = append(values, value)
		}
	}
	return values, true
}

// objects returns the objects of a kind, cleaned, as YAML.
func (c *collector) objects(ctx context.Context, k kind) ([]byte, error) {
	var where dynamic.ResourceInterface = c.dynamic.Resource(k.resource)
	if !k.everywhere {
		where = c.dynamic.Resource(k.resource).Namespace(c.namespace)
	}
	var out []byte
	options := metav1.ListOptions{LabelSelector: k.selector, Limit: 500}
	for {
		list, err := where.List(ctx, options)
		if err != nil {
			return out, err
		}
		for i := range list.Items {
			if out, err = appendYAML(out, &list.Items[i]); err != nil {
				return out, err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" || len(out) > maxFile {
			return out, nil
		}
	}
}

// object returns one object, cleaned, as YAML.
func (c *collector) object(ctx context.Context, resource schema.GroupVersionResource, name string) ([]byte, error) {
	o, err := c.dynamic.Resource(resource).Namespace(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return appendYAML(nil, o)
}

func appendYAML(out []byte, o *unstructured.Unstructured) ([]byte, error) {
	clean := Clean(o)
	if clean == nil {
		return out, nil
	}
	raw, err := yaml.Marshal(clean.Object)
	return append(append(out, "---\n"...), raw...), err
}

// logs calls f with the log of each container of our pods, and with that of the container
// before it.
func (c *collector) logs(ctx context.Context, f func(name string, content []byte) error) error {
	pods, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		c.problem("logs", err)
		return nil
	}
	for i := range pods.Items {
		if err := c.logsOf(ctx, &pods.Items[i], f); err != nil {
			return err
		}
	}
	return nil
}

// logsOf is logs of one pod.
func (c *collector) logsOf(ctx context.Context, pod *corev1.Pod, f func(name string, content []byte) error) error {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		// The API server says what it is called, and other ones are not as strict as Kubernetes.
		name := fmt.Sprintf("logs/%s/%s", strings.ReplaceAll(pod.Name, "/", "_"),
			strings.ReplaceAll(container.Name, "/", "_"))
		content, err := c.log(ctx, pod.Name, container.Name, false)
		if err != nil {
			c.problem(name, err)
		} else if err := f(name+".log", content); err != nil {
			return err
		}
		content, err = c.log(ctx, pod.Name, container.Name, true)
		if err != nil {
			continue // most containers have none before them
		}
		if err := f(name+".previous.log", content); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) log(ctx context.Context, pod, container string, previous bool) ([]byte, error) {
	lines := int64(logLines)
	stream, err := c.client.CoreV1().Pods(c.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines, Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(stream, 4*maxFile))
	return content, errors.Join(err, stream.Close())
}

// argoCD says which images and which flags the parts of Argo CD run with.
func (c *collector) argoCD(ctx context.Context) ([]byte, error) {
	list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/part-of=argocd",
	})
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	for i := range list.Items {
		pod := &list.Items[i]
		for _, container := range pod.Spec.Containers {
			args := make([]any, 0, len(container.Args))
			for _, a := range container.Args {
				args = append(args, a)
			}
			cleanArguments(args)
			fmt.Fprintf(&out, "%s %s: %s, phase %s, arguments %v\n", pod.Name, container.Name, container.Image, pod.Status.Phase,
				args)
		}
	}
	return []byte(out.String()), nil
}

// version says of which releases both sides of the call are.
func (c *collector) version(own any) ([]byte, error) {
	server, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(map[string]any{"agentctl": own, "kubernetes": server}, "", "  ")
}
