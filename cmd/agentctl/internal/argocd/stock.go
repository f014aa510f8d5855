package argocd

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/manifests"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
)

// Stock is the release of Helm, and its chart, in which agentctl brings Argo CD.
const Stock = "argomesh-argocd"

// Role is what Argo CD does in a cluster.
type Role int

// The roles: that of the hub, and those of spokes whose Applications are the hub's or their own.
const (
	Hub Role = iota + 1
	ManagedSpoke
	AutonomousSpoke
)

// The parts of Argo CD, which its manifests have as prefixes of names. What has none of them is for all.
const (
	controllerPart     = "argocd-application-controller"
	applicationSetPart = "argocd-applicationset-controller"
	dexPart            = "argocd-dex-server"
	notificationsPart  = "argocd-notifications"
	serverPart         = "argocd-server"
)

// String is what a release keeps of a role: a hub does not become a spoke, nor a spoke a hub.
func (r Role) String() string {
	if r == Hub {
		return "hub"
	}
	return "spoke"
}

// without returns the parts that are not there in a role: on the hub what deploys, on spokes what people and
// their tools talk to, which is the hub's.
func (r Role) without() []string {
	switch r {
	case ManagedSpoke:
		return []string{applicationSetPart, dexPart, notificationsPart, serverPart}
	case AutonomousSpoke:
		return []string{dexPart, notificationsPart, serverPart}
	}
	return []string{controllerPart, "argocd-metrics"}
}

const (
	installFile = "install.yaml"
	// serverRights is the folder with what lets argocd-server change Applications of any namespace.
	serverRights = "applications"
	// paramsMap has the settings of Argo CD's programs.
	paramsMap = "argocd-cmd-params-cm"
)

// StockObjects returns Argo CD for a role in a namespace, out of its own manifests. On the hub it serves
// Applications of all namespaces, and leaves the arguments of argocd-server to who sets them, so that
// [Use] changes nothing of the release.
func StockObjects(set manifests.Set, role Role, namespace string) ([]*unstructured.Unstructured, error) {
	files := []string{installFile}
	for name := range set.Files {
		if path.Dir(name) == serverRights {
			files = append(files, name)
		}
	}
	slices.Sort(files[1:])
	var out []*unstructured.Unstructured
	for _, name := range files {
		objects, err := release.Objects(string(set.Files[name]))
		if err != nil {
			return nil, fmt.Errorf("manifests of Argo CD %s: %s: %w", set.Version, name, err)
		}
		for _, o := range objects {
			if !slices.ContainsFunc(role.without(), func(part string) bool { return isOf(o.GetName(), part) }) {
				out = append(out, o)
			}
		}
	}
	for _, o := range out {
		if err := adapt(o, role, namespace); err != nil {
			return nil, fmt.Errorf("manifests of Argo CD %s: %s %s: %w", set.Version, o.GetKind(), o.GetName(), err)
		}
	}
	return out, nil
}

// isOf reports whether a name is that of a part, or begins with it.
func isOf(name, part string) bool { return name == part || strings.HasPrefix(name, part+"-") }

// adapt fits an object to its role and namespace.
func adapt(o *unstructured.Unstructured, role Role, namespace string) error {
	switch {
	case strings.HasSuffix(o.GetKind(), "RoleBinding"):
		subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
		if err != nil {
			return err
		}
		for _, s := range subjects {
			if s, is := s.(map[string]any); is && s["namespace"] != nil {
				s["namespace"] = namespace
			}
		}
		return unstructured.SetNestedSlice(o.Object, subjects, "subjects")
	case role == Hub && o.GetKind() == "ConfigMap" && o.GetName() == paramsMap:
		return unstructured.SetNestedField(o.Object, "*", "data", "application.namespaces")
	case o.GetKind() == "Deployment" && o.GetName() == serverPart:
		return argsToCommand(o)
	}
	return nil
}

// argsToCommand moves the arguments of argocd-server into its command, behind the entry point of its image.
func argsToCommand(o *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	if len(containers) != 1 {
		return fmt.Errorf("it has %d containers, not one", len(containers))
	}
	c, _ := containers[0].(map[string]any)
	args, _ := c["args"].([]any)
	if len(args) == 0 || c["command"] != nil {
		return errors.New("its container has no arguments, or a command")
	}
	delete(c, "args")
	c["command"] = append([]any{"/usr/bin/tini", "--"}, args...)
	return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}

// Inject has the pods of what calls the principal have labels and annotations.
func Inject(objects []*unstructured.Unstructured, labels, annotations map[string]string) error {
	for _, o := range objects {
		if name := o.GetName(); !strings.HasSuffix(o.GetKind(), "Set") && o.GetKind() != "Deployment" ||
			name != serverPart && name != controllerPart {
			continue
		}
		for field, add := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
			at := []string{"spec", "template", "metadata", field}
			all, _, err := unstructured.NestedStringMap(o.Object, at...)
			if err != nil {
				return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, add)
			if err := unstructured.SetNestedStringMap(o.Object, all, at...); err != nil {
				return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// StockChart returns the files of a chart that installs objects of a release of Argo CD.
func StockChart(version string, objects []*unstructured.Unstructured) (map[string][]byte, error) {
	template, err := manifests.Template(objects)
	if err != nil {
		return nil, err
	}
	chart := fmt.Sprintf("apiVersion: v2\nname: %s\ndescription: Argo CD %s as agentctl brings it\ntype: application\nversion: %s\n"+
		"appVersion: %s\n", Stock, version, strings.TrimPrefix(version, "v"), version)
	return map[string][]byte{"Chart.yaml": []byte(chart), "templates/argocd.yaml": template}, nil
}
