//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// beforeAdoption is a hub whose principal is from before copies said whose they are,
// when whatever was there was taken over, and the project default sent to everybody.
func beforeAdoption(t *testing.T, settings harness.Settings) *env.Bare {
	t.Helper()
	return env.NewPool(1, func(ctx context.Context, h *harness.Harness) (*env.Bare, error) {
		w, err := env.StartBareControlPlanes(ctx, h, nil, nil)
		if err != nil {
			return nil, err
		}
		err = w.StartPrincipal(ctx, "principal-before-adoption", settings)
		return w, err
	}).TakeAlone(t).Get(t)
}

// upgraded is one object that an upgrade has to leave in place.
type upgraded struct {
	where dynamic.ResourceInterface
	name  string
}

// upgradeSpoke is one managed agent of the test, and what it has.
type upgradeSpoke struct {
	*env.BareAgent
	projects, secrets, configMaps dynamic.ResourceInterface
	prefix                        string // of the names of its Applications
}

func (s upgradeSpoke) copies() map[string]upgraded {
	return map[string]upgraded{
		"the copy of an Application":          {s.Spoke, s.prefix + "made"},
		"an adopted Application":              {s.Spoke, s.prefix + "adopted"},
		"the copy of a project":               {s.projects, "team"},
		"the project default":                 {s.projects, "default"},
		"the copy of a repository":            {s.secrets, "repo-made"},
		"an adopted repository":               {s.secrets, "repo-adopted"},
		"a ConfigMap with items of the hub's": {s.configMaps, "argocd-gpg-keys-cm"},
	}
}

// describes waits until the spoke's project default has that description, as a copy or
// not.
func (s upgradeSpoke) describes(t *testing.T, when, text string, copied bool) {
	t.Helper()
	env.Eventually(t, when, func() error {
		o, err := s.projects.Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		description, _, _ := unstructured.NestedString(o.Object, "spec", "description")
		if marked := o.GetAnnotations()[env.SourceUID] != ""; description != text || marked != copied {
			return fmt.Errorf("default of %s has description %q, a copy: %v, want %q, %v", s.Name, description, marked, text, copied)
		}
		return nil
	})
}

// TestUpgradeTakesNothingAway upgrades a principal and its agents from before adoption
// needed a permission: one agent that is there all the time, one that is away meanwhile
// and one that stays as it is. No one has said by what the hub maps.
func TestUpgradeTakesNothingAway(t *testing.T) {
	t.Parallel()
	testUpgrade(t, beforeAdoption(t, harness.Settings{"mapping.by": ""}), "namespace", func(*upgradeSpoke) {})
}

// TestUpgradeByDestination is TestUpgradeTakesNothingAway of a hub where all agents have
// their Applications in one namespace, that of its Argo CD.
func TestUpgradeByDestination(t *testing.T) {
	t.Parallel()
	w := beforeAdoption(t, harness.Settings{"mapping.by": "destination"})
	testUpgrade(t, w, "destination", func(s *upgradeSpoke) {
		s.Hub, s.prefix = w.Hub.Resource(harness.Applications, harness.ArgoCDNamespace), s.Name+"-"
	})
}

// testUpgrade is told by what the hub maps, and by place where it has the Applications of an
// agent.
func testUpgrade(t *testing.T, w *env.Bare, mapping string, place func(*upgradeSpoke)) {
	t.Helper()
	ctx := t.Context()
	hubSecrets, hubMaps := w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace), w.Hub.Resource(env.ConfigMaps, harness.ArgoCDNamespace)
	env.Patch(t, w.HubProjects(), "default", map[string]any{"spec": map[string]any{"description": "of the hub"}})
	env.Create(t, w.HubProjects(), openProject("team", "first"))
	env.Create(t, hubSecrets, repositorySecret("repo-made", "team"))
	env.Create(t, hubSecrets, repositorySecret("repo-adopted", "team"))
	env.Create(t, hubMaps, trustMap("argocd-gpg-keys-cm", map[string]any{"HUB": "key"}))

	spokes := map[string]upgradeSpoke{}
	for _, name := range []string{"upg-here", "upg-away", "upg-old"} {
		r := w.Register(t, name, "managed")
		r.Program = "agent-before-adoption"
		s := upgradeSpoke{
			BareAgent: r, projects: w.Spoke.Resource(harness.AppProjects, name), secrets: w.Spoke.Resource(env.Secrets, name), configMaps: w.Spoke.Resource(env.ConfigMaps, name),
		}
		place(&s)
		spokes[name] = s
		if name != "upg-old" { // which has no argocd-server that would have made one
			env.Create(t, s.projects, openProject("default", "of the spoke"))
		}
		own := r.Application(s.prefix + "adopted")
		own.SetNamespace(name)
		env.Create(t, s.Spoke, own)
		env.Create(t, s.secrets, repositorySecret("repo-adopted", ""))
		env.Create(t, s.configMaps, trustMap("argocd-gpg-keys-cm", map[string]any{"OWN": "key"}))
		for _, app := range []string{"made", "adopted"} {
			env.Create(t, r.Hub, r.Application(s.prefix+app))
		}
		r.Start(t)
	}
	auto := w.Register(t, "upg-auto", "autonomous")
	auto.Program = "agent-before-adoption"
	env.Create(t, w.Spoke.Resource(harness.AppProjects, auto.Name), openProject("local", "first"))
	env.Create(t, auto.Spoke, auto.Application("local"))
	auto.Start(t)

	held := map[string]upgraded{
		"the mirror of an Application": {auto.Hub, "local"}, "the mirror of a project": {w.HubProjects(), auto.Name + "-local"},
	}
	for name, s := range spokes {
		for what, o := range s.copies() {
			held[what+" of "+name] = o
		}
	}
	before := map[string]string{}
	for what, o := range held {
		env.Eventually(t, what+" is one of ours", func() error { return isCopy(ctx, o) })
		before[what] = string(env.Get(t, o.where, o.name).GetUID())
	}
	theSame := func(when string) {
		t.Helper()
		for what, o := range held {
			if uid := string(env.Get(t, o.where, o.name).GetUID()); uid != before[what] {
				t.Errorf("%s: %s is another object", when, what)
			}
		}
	}

	here, away, old := spokes["upg-here"], spokes["upg-away"], spokes["upg-old"]
	if err := away.Agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	replace := func(p *harness.Process, program string) {
		t.Helper()
		path, err := w.Harness.Binary(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Replace(ctx, path); err != nil {
			t.Fatal(err)
		}
	}
	replace(w.Principal.Process, "principal")
	replace(here.Agent.Process, "agent")
	replace(auto.Agent.Process, "agent")
	env.Patch(t, away.Hub, away.prefix+"made", specOf("targetRevision", "2"))
	replace(away.Agent.Process, "agent")

	decided := env.Get(t, hubMaps, "argomesh-hub").Object["data"].(map[string]any)
	if got := decided["default-project"]; got != "shared" {
		t.Errorf("the hub has decided %v of its project default, want shared", got)
	}
	if got := decided["mapping"]; got != mapping {
		t.Errorf("the hub maps by %v, want %s", got, mapping)
	}
	env.Patch(t, w.HubProjects(), "default", map[string]any{"spec": map[string]any{"description": "second"}})
	env.Patch(t, w.HubProjects(), "team", map[string]any{"spec": map[string]any{"description": "second"}})
	env.Patch(t, hubSecrets, "repo-adopted", map[string]any{"data": map[string]any{"password": env.Base64("second")}})
	env.Patch(t, hubSecrets, "repo-made", map[string]any{"data": map[string]any{"password": env.Base64("second")}})
	env.Patch(t, hubMaps, "argocd-gpg-keys-cm", map[string]any{"data": map[string]any{"HUB": "second"}})
	for name, s := range spokes {
		for _, app := range []string{"made", "adopted"} {
			env.Patch(t, s.Hub, s.prefix+app, specOf("targetRevision", "3"))
			env.Eventually(t, app+" of "+name+" follows", func() error { return env.FieldIs(ctx, s.Spoke, s.prefix+app, "3", "spec", "source", "targetRevision") })
		}
		s.describes(t, "the project default of "+name+" follows", "second", true)
		env.Eventually(t, "all of "+name+" follows", func() error {
			return errors.Join(
				env.FieldIs(ctx, s.projects, "team", "second", "spec", "description"),
				env.FieldIs(ctx, s.secrets, "repo-made", env.Base64("second"), "data", "password"),
				env.FieldIs(ctx, s.secrets, "repo-adopted", env.Base64("second"), "data", "password"),
				env.FieldIs(ctx, s.configMaps, "argocd-gpg-keys-cm", "second", "data", "HUB"),
				env.FieldIs(ctx, s.configMaps, "argocd-gpg-keys-cm", "key", "data", "OWN"),
				env.FieldIs(ctx, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), name, int64(0), "status", "counts", "parked"),
			)
		})
	}
	env.Patch(t, auto.Spoke, "local", specOf("targetRevision", "3"))
	env.Patch(t, w.Spoke.Resource(harness.AppProjects, auto.Name), "local", map[string]any{"spec": map[string]any{"description": "second"}})
	env.Eventually(t, "mirrors follow", func() error {
		return errors.Join(
			env.FieldIs(ctx, auto.Hub, "local", "3", "spec", "source", "targetRevision"),
			env.FieldIs(ctx, w.HubProjects(), auto.Name+"-local", "second", "spec", "description"),
		)
	})
	theSame("after the upgrade")
	env.Eventually(t, "the Agent names the principal and its connection", func() error {
		agent, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, here.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		link, _, _ := unstructured.NestedMap(agent.Object, "status", "link")
		if link["connection"] == nil || link["process"] == nil || link["epoch"] == nil {
			return fmt.Errorf("status.link is %v", link)
		}
		return nil
	})

	Reconfigure(t, w.Principal, "projects", map[string]any{"share_default": false})
	here.describes(t, "it is given up", "second", false)
	away.describes(t, "it is given up", "second", false)
	env.Patch(t, w.HubProjects(), "default", map[string]any{"spec": map[string]any{"description": "third"}})
	old.describes(t, "an agent from before keeps getting it", "third", true)
	replace(old.Agent.Process, "agent")
	old.describes(t, "it is given up once the agent can", "third", false)
	here.describes(t, "it stays as it was", "second", false)
	theSame("after the end of sharing")
}

// Reconfigure gives a block of the principal's configuration, and restarts it.
func Reconfigure(t *testing.T, p *harness.Principal, key string, block map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(p.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]any
	if err := yaml.Unmarshal(raw, &settings); err != nil {
		t.Fatal(err)
	}
	settings[key] = block
	if raw, err = yaml.Marshal(settings); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.ConfigFile, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func isCopy(ctx context.Context, o upgraded) error {
	there, err := o.where.Get(ctx, o.name, metav1.GetOptions{})
	if err == nil && there.GetAnnotations()[env.SourceUID] == "" {
		err = errors.New("it has no " + env.SourceUID)
	}
	return err
}

// openProject is an AppProject for every namespace and cluster.
func openProject(name, description string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"description": description, "sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"},
			"destinations": []any{map[string]any{"server": "*", "namespace": "*"}},
		},
	}}
}

func trustMap(name string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
	}}
}

// specOf is a patch of a field of an Application's source.
func specOf(name, value string) map[string]any {
	return map[string]any{"spec": map[string]any{"source": map[string]any{name: value}}}
}
