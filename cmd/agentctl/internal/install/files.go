package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
)

// Folders below that of --output-dir.
const (
	hubFolder    = "hub"
	agentsFolder = "hub/agents"
	serverFolder = "hub/argocd-server"
	setFolder    = "hub/agents-applicationset"
	spokesFolder = "spokes"
)

const kustomization = "kustomization.yaml"

// files writes what would be installed, for tools that apply files. A file that is there is
// written over, and no other is touched.
type files struct {
	s      *side
	folder string
}

// write writes a file of one or more YAML documents, unless it has that content.
func (f files) write(folder, name string, documents ...any) error {
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
	path := filepath.Join(f.folder, filepath.FromSlash(folder), name)
	if err := os.MkdirAll(f.folder, 0o755); err != nil { //nolint:gosec // for a repository, without secrets
		return err
	}
	// Who writes to the repository leads nowhere else by a symbolic link, nor a hub by a name.
	root, err := os.OpenRoot(f.folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it is a folder
	inside := filepath.Join(filepath.FromSlash(folder), name)
	if there, err := root.ReadFile(inside); err == nil && bytes.Equal(there, out.Bytes()) {
		return f.s.say("%s unchanged", path)
	}
	if err := root.MkdirAll(filepath.Dir(inside), 0o755); err != nil {
		return err
	}
	if err := root.WriteFile(inside, out.Bytes(), 0o644); err != nil {
		return err
	}
	return f.s.say("%s written", path)
}

// kustomize writes the Kustomization of a folder.
func (f files) kustomize(folder string, resources ...string) error {
	return f.write(folder, kustomization, map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources,
	})
}

// writeFiles writes what w is to be, and returns nil; nothing is written to the cluster.
func (s *side) writeFiles(ctx context.Context, o *options, w wanted, folder string) error {
	chart, err := charts.Open(s.chart)
	if err != nil {
		return err
	}
	plan, err := s.releases.Plan(ctx, release.Desired{Name: s.chart, Chart: chart, Values: w.values, Force: o.force})
	if err != nil {
		return s.explain(err, "render "+s.chart)
	}
	if plan.Manifest == "" {
		return fmt.Errorf("%s: %s, so nothing can be rendered: run the command without --output-dir first", s.chart, plan.Why)
	}
	objects, err := release.Objects(plan.Manifest)
	if err != nil {
		return err
	}
	f := files{s, o.outputDir}
	resources := []string{s.chart + ".yaml"}
	if err := f.write(folder, resources[0], contents(objects)...); err != nil {
		return err
	}
	if w.identity != nil {
		resources = append(resources, "identity.yaml")
		if err := f.write(folder, "identity.yaml", contents(w.identity.wants)...); err != nil {
			return err
		}
	}
	var meshed []any
	for _, state := range w.mesh {
		meshed = append(meshed, contents(state.Objects())...)
	}
	if len(meshed) > 0 {
		resources = append(resources, "mesh.yaml")
		if err := f.write(folder, "mesh.yaml", meshed...); err != nil {
			return err
		}
	}
	return f.kustomize(folder, resources...)
}

// writeExtra writes one thing of others, as its release would have it.
func writeExtra(ctx context.Context, s *side, o *options, e extra, folder string) error {
	plan, err := s.releases.Plan(ctx, e.desired)
	if err != nil {
		return s.explain(err, "render "+e.desired.Name)
	}
	if plan.Manifest == "" {
		return fmt.Errorf("%s: %s, so nothing can be rendered: run the command without --output-dir first", e.desired.Name, plan.Why)
	}
	objects, err := release.Objects(plan.Manifest)
	if err != nil {
		return err
	}
	f := files{s, o.outputDir}
	metadata := map[string]any{"name": e.namespace}
	if len(e.labels) > 0 {
		metadata["labels"] = e.labels
	}
	namespace := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
	if err := f.write(folder, "namespace.yaml", namespace); err != nil {
		return err
	}
	if err := f.write(folder, e.desired.Name+".yaml", contents(objects)...); err != nil {
		return err
	}
	// Helm installs into a namespace what names none.
	err = f.write(folder, kustomization, map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": e.namespace,
		"resources": []string{"namespace.yaml", e.desired.Name + ".yaml"},
	})
	if err != nil {
		return err
	}
	return s.say("next: kubectl apply --server-side -k %s", filepath.Join(o.outputDir, filepath.FromSlash(folder)))
}

func contents(objects []*unstructured.Unstructured) (out []any) {
	for _, o := range objects {
		out = append(out, o.Object)
	}
	return out
}

// writeHub writes the files of the hub.
func (s *side) writeHub(ctx context.Context, o *options, w wanted) error {
	if err := errors.Join(s.writeFiles(ctx, o, w, hubFolder), sayAll(s, w.told)); err != nil {
		return err
	}
	f := files{s, o.outputDir}
	next := fmt.Sprintf("next: kubectl apply --server-side -k %s", filepath.Join(o.outputDir, hubFolder))
	switch {
	case w.server.told != "":
		next += "; " + w.server.told
	case w.server.change.Args != nil:
		if err := f.server(w.server); err != nil {
			return err
		}
		next += fmt.Sprintf("; and name %s among the components of the Kustomization of Argo CD",
			filepath.Join(o.outputDir, serverFolder))
	}
	return s.say("%s", next)
}

// server writes the change of argocd-server as a component, which the Kustomization of Argo CD
// names.
func (f files) server(p serverPlan) error {
	pod := p.server.Spec.Template.Spec
	patch, err := yaml.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": p.server.Name},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": pod.Containers[argocd.Container(pod)].Name, "args": p.change.Args},
		}}}},
	})
	if err != nil {
		return err
	}
	return f.write(serverFolder, kustomization, map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component",
		"patches": []any{map[string]any{
			"target": map[string]any{"kind": "Deployment", "name": p.server.Name}, "patch": string(patch),
		}},
	})
}

// writeSpoke writes the files of a spoke, and its Agent among those of the hub.
func (s *side) writeSpoke(ctx context.Context, o *options, w wanted, name string, agent *v1alpha1.Agent) error {
	folder := spokesFolder + "/" + name
	if err := s.writeFiles(ctx, o, w, folder); err != nil {
		return err
	}
	f := files{s, o.outputDir}
	next := ""
	if agent != nil {
		if err := f.agent(agent); err != nil {
			return err
		}
		next = fmt.Sprintf("on the hub kubectl apply --server-side -k %s, and then ", filepath.Join(o.outputDir, agentsFolder))
	}
	if o.repository != "" {
		if err := f.applicationSet(o, s.namespace); err != nil {
			return err
		}
	}
	return s.say("next: %son the spoke kubectl apply --server-side -k %s", next,
		filepath.Join(o.outputDir, filepath.FromSlash(folder)))
}

// agent writes an Agent, and has the folder of the Agents name all that are there.
func (f files) agent(agent *v1alpha1.Agent) error {
	err := f.write(agentsFolder, agent.Name+".yaml", map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.AgentKind,
		"metadata": map[string]any{"name": agent.Name, "namespace": agent.Namespace}, "spec": agent.Spec,
	})
	if err != nil {
		return err
	}
	there, err := os.ReadDir(filepath.Join(f.folder, filepath.FromSlash(agentsFolder)))
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
	return f.kustomize(agentsFolder, all...)
}

// applicationSet writes the ApplicationSet that keeps the agents of all spokes in the files as
// they are in the repository, by the agents themselves: each has the Application of its own
// cluster, and the Argo CD there applies it. It is for a hub that maps by destination, on which
// Applications are in one namespace.
func (f files) applicationSet(o *options, namespace string) error {
	const name = "argomesh-agents"
	project := map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"description": "The agents of Argomesh themselves", "sourceRepos": []any{o.repository},
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
				"repoURL": o.repository, "revision": "HEAD",
				"directories": []any{map[string]any{"path": strings.Trim(o.repositoryPath+"/"+spokesFolder, "/") + "/*"}},
			}}},
			// An Application that goes leaves the agent as it is.
			"syncPolicy": map[string]any{"preserveResourcesOnDeletion": true},
			"template": map[string]any{
				"metadata": map[string]any{"name": "argomesh-agent-{{.path.basename}}"},
				"spec": map[string]any{
					"project":     name,
					"source":      map[string]any{"repoURL": o.repository, "targetRevision": "HEAD", "path": "{{.path.path}}"},
					"destination": map[string]any{"name": "{{.path.basename}}", "namespace": namespace},
					"syncPolicy": map[string]any{
						"automated": map[string]any{"selfHeal": true}, "syncOptions": []any{"ServerSideApply=true"},
					},
				},
			},
		},
	}
	if err := f.write(setFolder, "applicationset.yaml", project, set); err != nil {
		return err
	}
	return f.kustomize(setFolder, "applicationset.yaml")
}
