package check

import (
	"context"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// managerName is what the container of a spire-controller-manager, or its image, is called.
const managerName = "spire-controller-manager"

// Manager is a spire-controller-manager of the cluster, as its configuration says.
type Manager struct {
	// About names the workload.
	About string
	// Class is that of the objects it looks after; Classless says that it takes those of no class, too.
	Class     string
	Classless bool
}

// takes reports whether it looks after objects of a class.
func (m Manager) takes(class string) bool { return class == m.Class || class == "" && m.Classless }

// String says which objects it looks after.
func (m Manager) String() string {
	switch {
	case m.Class == "":
		return m.About + " looks after those of no class"
	case m.Classless:
		return fmt.Sprintf("%s looks after class %s and those of no class", m.About, m.Class)
	}
	return fmt.Sprintf("%s looks after class %s", m.About, m.Class)
}

// managers reads those of the cluster: none of its objects says that it is one, so the workloads of all namespaces
// are looked at, and of those that are the files of their ConfigMaps.
func (o *observer) managers(ctx context.Context) (out []Manager, err error) {
	for _, resource := range []string{"statefulsets", "deployments"} {
		all := o.objects.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource})
		err := cli.EachOf(ctx, all, func(obj *unstructured.Unstructured) error {
			m, is, err := o.manager(ctx, obj)
			if err == nil && is {
				m.About = fmt.Sprintf("%s %s/%s", obj.GetKind(), obj.GetNamespace(), obj.GetName())
				out = append(out, m)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// manager reads the configuration of a workload that is one.
func (o *observer) manager(ctx context.Context, workload *unstructured.Unstructured) (m Manager, is bool, err error) {
	template, _, _ := unstructured.NestedMap(workload.Object, "spec", "template")
	var pod corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod); err != nil {
		return m, false, err
	}
	if !isManager(pod.Spec.Containers) {
		return m, false, nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		cm, err := o.client.CoreV1().ConfigMaps(workload.GetNamespace()).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return m, false, err
		}
		for _, file := range cm.Data {
			if m, is := parseManager(file); is {
				return m, true, nil
			}
		}
	}
	return m, false, nil
}

func isManager(containers []corev1.Container) bool {
	for _, c := range containers {
		image, _, _ := strings.Cut(path.Base(c.Image), ":")
		image, _, _ = strings.Cut(image, "@")
		if c.Name == managerName || image == managerName {
			return true
		}
	}
	return false
}

// parseManager reads the file that a spire-controller-manager has as its configuration; is says that it is one, and
// that its class stands there and not in the environment.
func parseManager(file string) (m Manager, is bool) {
	var config struct {
		Kind           string `json:"kind"`
		ClassName      string `json:"className"`
		WatchClassless bool   `json:"watchClassless"`
	}
	if yaml.Unmarshal([]byte(file), &config) != nil || config.Kind != "ControllerManagerConfig" {
		return m, false
	}
	return Manager{Class: config.ClassName, Classless: config.WatchClassless}, !strings.Contains(config.ClassName, "$")
}
