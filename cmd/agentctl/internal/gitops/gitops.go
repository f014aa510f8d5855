// Package gitops writes what an install would apply as files, for tools that apply what a repository has: a folder with
// a Kustomization for each side, and what else the hub's Argo CD takes. A file that is there is written over, and no
// other is touched.
//
//	f := gitops.Files{Folder: "fleet", Out: os.Stdout}
//	err := f.Kustomize(gitops.HubFolder, "argomesh-principal.yaml")
package gitops

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
)

// Folders below that of the files.
const (
	HubFolder    = "hub"
	AgentsFolder = "hub/agents"
	ServerFolder = "hub/argocd-server"
	SpokesFolder = "spokes"
	setFolder    = "hub/agents-applicationset"
)

const kustomization = "kustomization.yaml"

// Files are those below a folder. Both fields are required.
type Files struct {
	Folder string
	// Out is told of each file.
	Out io.Writer
}

// At is the path of a folder among them.
func (f Files) At(folder string) string { return filepath.Join(f.Folder, filepath.FromSlash(folder)) }

// Write writes a file of one or more YAML documents, unless it has that content.
func (f Files) Write(folder, name string, documents ...any) error {
	var out bytes.Buffer
	for i, d := range documents {
		raw, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(raw)
	}
	path := filepath.Join(f.Folder, filepath.FromSlash(folder), name)
	if err := os.MkdirAll(f.Folder, 0o755); err != nil { //nolint:gosec // for a repository, without secrets
		return err
	}
	// Who writes to the repository leads nowhere else by a symbolic link, nor a hub by a name.
	root, err := os.OpenRoot(f.Folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it is a folder
	inside := filepath.Join(filepath.FromSlash(folder), name)
	if there, err := root.ReadFile(inside); err == nil && bytes.Equal(there, out.Bytes()) {
		return f.say(path, "unchanged")
	}
	if err := root.MkdirAll(filepath.Dir(inside), 0o755); err != nil {
		return err
	}
	if err := root.WriteFile(inside, out.Bytes(), 0o644); err != nil {
		return err
	}
	return f.say(path, "written")
}

// say tells what became of a file.
func (f Files) say(path, what string) error {
	_, err := fmt.Fprintln(f.Out, path, what)
	return err
}

// Kustomize writes the Kustomization of a folder.
func (f Files) Kustomize(folder string, resources ...string) error {
	return f.KustomizeInto("", folder, resources...)
}

// KustomizeInto writes the Kustomization of a folder, whose objects go into a namespace where they name none; empty for
// theirs alone.
func (f Files) KustomizeInto(namespace, folder string, resources ...string) error {
	k := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources,
	}
	if namespace != "" {
		k["namespace"] = namespace
	}
	return f.Write(folder, kustomization, k)
}

// Agent writes an Agent, and has the folder of the Agents name all that are there.
func (f Files) Agent(agent *v1alpha1.Agent) error {
	err := f.Write(AgentsFolder, agent.Name+".yaml", map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.AgentKind,
		"metadata": map[string]any{"name": agent.Name, "namespace": agent.Namespace}, "spec": agent.Spec,
	})
	if err != nil {
		return err
	}
	there, err := os.ReadDir(f.At(AgentsFolder))
	if err != nil {
		return err
	}
	var all []string
	for _, e := range there {
		if name := e.Name(); name != kustomization && strings.HasSuffix(name, ".yaml") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return f.Kustomize(AgentsFolder, all...)
}

// Server writes the arguments of argocd-server as a component, which the Kustomization of Argo CD
// names.
func (f Files) Server(server *appsv1.Deployment, args []string) error {
	pod := server.Spec.Template.Spec
	patch, err := yaml.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": server.Name},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": pod.Containers[argocd.Container(pod)].Name, "args": args},
		}}}},
	})
	if err != nil {
		return err
	}
	return f.Write(ServerFolder, kustomization, map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component",
		"patches": []any{map[string]any{
			"target": map[string]any{"kind": "Deployment", "name": server.Name}, "patch": string(patch),
		}},
	})
}

// ApplicationSet writes the ApplicationSet that keeps the agents of all spokes in the files as
// they are in the repository, at that path, by the agents themselves: each has the Application of its own
// cluster, and the Argo CD there applies it. It is for a hub that maps by destination, on which
// Applications are in one namespace.
func (f Files) ApplicationSet(repository, path, namespace string) error {
	const name = "argomesh-agents"
	project := map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"description": "The agents of Argomesh themselves", "sourceRepos": []any{repository},
			"destinations": []any{map[string]any{"name": "*", "namespace": namespace}},
			"clusterResourceWhitelist": []any{
				map[string]any{"group": "rbac.authorization.k8s.io", "kind": "ClusterRole"},
				map[string]any{"group": "rbac.authorization.k8s.io", "kind": "ClusterRoleBinding"},
				map[string]any{"group": "admissionregistration.k8s.io", "kind": "ValidatingAdmissionPolicy"},
				map[string]any{"group": "admissionregistration.k8s.io", "kind": "ValidatingAdmissionPolicyBinding"},
				map[string]any{"group": "spire.spiffe.io", "kind": "ClusterSPIFFEID"},
			},
		},
	}
	set := map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"goTemplate": true, "goTemplateOptions": []any{"missingkey=error"},
			"generators": []any{map[string]any{"git": map[string]any{
				"repoURL": repository, "revision": "HEAD",
				"directories": []any{map[string]any{"path": strings.Trim(path+"/"+SpokesFolder, "/") + "/*"}},
			}}},
			// An Application that goes leaves the agent as it is.
			"syncPolicy": map[string]any{"preserveResourcesOnDeletion": true},
			"template": map[string]any{
				"metadata": map[string]any{"name": "argomesh-agent-{{.path.basename}}"},
				"spec": map[string]any{
					"project": name,
					"source": map[string]any{
						"repoURL": repository, "targetRevision": "HEAD", "path": "{{.path.path}}",
					},
					"destination": map[string]any{"name": "{{.path.basename}}", "namespace": namespace},
					"syncPolicy": map[string]any{
						"automated": map[string]any{"selfHeal": true}, "syncOptions": []any{"ServerSideApply=true"},
					},
				},
			},
		},
	}
	if err := f.Write(setFolder, "applicationset.yaml", project, set); err != nil {
		return err
	}
	return f.Kustomize(setFolder, "applicationset.yaml")
}
