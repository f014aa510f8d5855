package install

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/gitops"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
)

// files are those that --output-dir asks for.
func (s *side) files(o *options) gitops.Files {
	return gitops.Files{Folder: o.outputDir, Out: s.std.Out}
}

// writeFiles writes what w is to be, and returns nil; nothing is written to the cluster.
func (s *side) writeFiles(ctx context.Context, o *options, w wanted, folder string) error {
	chart, err := charts.Open(s.chart)
	if err != nil {
		return err
	}
	desired := release.Desired{Name: s.chart, Chart: chart, Values: w.values, Force: o.force}
	plan, err := s.plan(ctx, o, &desired)
	if err != nil {
		return err
	}
	if plan.Manifest == "" {
		return fmt.Errorf("%s: %s, so nothing can be rendered: run the command without --output-dir first", s.chart, plan.Why)
	}
	objects, err := release.Objects(plan.Manifest)
	if err != nil {
		return err
	}
	f := s.files(o)
	resources := []string{s.chart + ".yaml"}
	if err := f.Write(folder, resources[0], contents(objects)...); err != nil {
		return err
	}
	if w.identity != nil {
		resources = append(resources, "identity.yaml")
		if err := f.Write(folder, "identity.yaml", contents(w.identity.wants)...); err != nil {
			return err
		}
	}
	var meshed []any
	for _, state := range w.mesh {
		meshed = append(meshed, contents(state.Objects())...)
	}
	if len(meshed) > 0 {
		resources = append(resources, "mesh.yaml")
		if err := f.Write(folder, "mesh.yaml", meshed...); err != nil {
			return err
		}
	}
	return f.Kustomize(folder, resources...)
}

// writeExtra writes one thing of others, as its release would have it.
func writeExtra(ctx context.Context, s *side, o *options, e extra, folder string) error {
	plan, err := s.plan(ctx, o, &e.desired)
	if err != nil {
		return err
	}
	if plan.Manifest == "" {
		return fmt.Errorf("%s: %s, so nothing can be rendered: run the command without --output-dir first", e.desired.Name, plan.Why)
	}
	objects, err := release.Objects(plan.Manifest)
	if err != nil {
		return err
	}
	f := s.files(o)
	metadata := map[string]any{"name": e.namespace}
	if len(e.labels) > 0 {
		metadata["labels"] = e.labels
	}
	namespace := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
	if err := f.Write(folder, "namespace.yaml", namespace); err != nil {
		return err
	}
	if err := f.Write(folder, e.desired.Name+".yaml", contents(objects)...); err != nil {
		return err
	}
	// Helm installs into a namespace what names none.
	if err := f.KustomizeInto(e.namespace, folder, "namespace.yaml", e.desired.Name+".yaml"); err != nil {
		return err
	}
	return s.say("next: kubectl apply --server-side -k %s", f.At(folder))
}

func contents(objects []*unstructured.Unstructured) (out []any) {
	for _, o := range objects {
		out = append(out, o.Object)
	}
	return out
}

// writeHub writes the files of the hub.
func (s *side) writeHub(ctx context.Context, o *options, w wanted) error {
	if err := errors.Join(s.writeFiles(ctx, o, w, gitops.HubFolder), sayAll(s, w.told)); err != nil {
		return err
	}
	f := s.files(o)
	next := fmt.Sprintf("next: kubectl apply --server-side -k %s", f.At(gitops.HubFolder))
	for _, told := range w.server.told {
		next += "; " + told
	}
	if w.server.change.Args != nil {
		if err := f.Server(w.server.server, w.server.change.Args); err != nil {
			return err
		}
		next += fmt.Sprintf("; and name %s among the components of the Kustomization of Argo CD",
			f.At(gitops.ServerFolder))
	}
	return s.say("%s", next)
}

// writeSpoke writes the files of a spoke, and its Agent among those of the hub.
func (s *side) writeSpoke(ctx context.Context, o *options, w wanted, name string, agent *v1alpha1.Agent) error {
	folder := gitops.SpokesFolder + "/" + name
	if err := s.writeFiles(ctx, o, w, folder); err != nil {
		return err
	}
	f := s.files(o)
	next := ""
	if err := sayAll(s, w.told); err != nil {
		return err
	}
	if o := w.project.Object; o != nil {
		if err := f.Write(gitops.AgentsFolder, "appproject-"+o.GetName()+".yaml", o.Object); err != nil {
			return err
		}
	}
	if agent != nil {
		if err := f.Agent(agent); err != nil {
			return err
		}
		next = fmt.Sprintf("on the hub kubectl apply --server-side -k %s, and then ", f.At(gitops.AgentsFolder))
	}
	if o.repository != "" {
		if err := f.ApplicationSet(o.repository, o.repositoryPath, s.namespace); err != nil {
			return err
		}
	}
	return s.say("next: %son the spoke kubectl apply --server-side -k %s", next, f.At(folder))
}
