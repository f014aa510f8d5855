//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
)

// beforeAdoption is a world whose principal is from before copies said whose they are,
// when whatever was there was taken over, and the project default sent to everybody.
func beforeAdoption(t *testing.T, settings harness.Settings) *quietWorld {
	t.Helper()
	return newWorlds(1, func(ctx context.Context, h *harness.Harness) (*quietWorld, error) {
		w, err := startQuietControlPlanes(ctx, h, nil, nil)
		if err != nil {
			return nil, err
		}
		err = w.startPrincipal(ctx, "principal-before-adoption", settings)
		return w, err
	}).takeAlone(t).get(t)
}

// upgraded is one object that an upgrade has to leave in place.
type upgraded struct {
	where dynamic.ResourceInterface
	name  string
}

// upgradeSpoke is one managed agent of the test, and what it has.
type upgradeSpoke struct {
	*remote
	projects, secrets, configMaps dynamic.ResourceInterface
	prefix                        string // of the names of its Applications
}

func (s upgradeSpoke) copies() map[string]upgraded {
	return map[string]upgraded{
		"the copy of an Application":          {s.spoke, s.prefix + "made"},
		"an adopted Application":              {s.spoke, s.prefix + "adopted"},
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
	eventually(t, when, func() error {
		o, err := s.projects.Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		description, _, _ := unstructured.NestedString(o.Object, "spec", "description")
		if marked := o.GetAnnotations()[sourceUID] != ""; description != text || marked != copied {
			return fmt.Errorf("default of %s has description %q, a copy: %v, want %q, %v", s.name, description, marked, text, copied)
		}
		return nil
	})
}

// TestUpgradeTakesNothingAway upgrades a principal and its agents from before adoption
// needed a permission: one agent that is there all the time, one that is away meanwhile
// and one that stays as it is. Nobody has said by what the hub maps.
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
		s.hub, s.prefix = w.hub.Resource(harness.Applications, harness.ArgoCDNamespace), s.name+"-"
	})
}

// testUpgrade is told by what the hub maps, and by place where it has the Applications of an
// agent.
func testUpgrade(t *testing.T, w *quietWorld, mapping string, place func(*upgradeSpoke)) {
	t.Helper()
	ctx := t.Context()
	hubSecrets, hubMaps := w.hub.Resource(secrets, harness.ArgoCDNamespace), w.hub.Resource(configMaps, harness.ArgoCDNamespace)
	patch(t, w.hubProjects(), "default", map[string]any{"spec": map[string]any{"description": "of the hub"}})
	create(t, w.hubProjects(), openProject("team", "first"))
	create(t, hubSecrets, repositorySecret("repo-made", "team"))
	create(t, hubSecrets, repositorySecret("repo-adopted", "team"))
	create(t, hubMaps, trustMap("argocd-gpg-keys-cm", map[string]any{"HUB": "key"}))

	spokes := map[string]upgradeSpoke{}
	for _, name := range []string{"upg-here", "upg-away", "upg-old"} {
		r := w.register(t, name, "managed")
		r.program = "agent-before-adoption"
		s := upgradeSpoke{
			remote: r, projects: w.spoke.Resource(harness.AppProjects, name), secrets: w.spoke.Resource(secrets, name), configMaps: w.spoke.Resource(configMaps, name),
		}
		place(&s)
		spokes[name] = s
		if name != "upg-old" { // which has no argocd-server that would have made one
			create(t, s.projects, openProject("default", "of the spoke"))
		}
		own := r.application(s.prefix + "adopted")
		own.SetNamespace(name)
		create(t, s.spoke, own)
		create(t, s.secrets, repositorySecret("repo-adopted", ""))
		create(t, s.configMaps, trustMap("argocd-gpg-keys-cm", map[string]any{"OWN": "key"}))
		for _, app := range []string{"made", "adopted"} {
			create(t, r.hub, r.application(s.prefix+app))
		}
		r.start(t)
	}
	auto := w.register(t, "upg-auto", "autonomous")
	auto.program = "agent-before-adoption"
	create(t, w.spoke.Resource(harness.AppProjects, auto.name), openProject("local", "first"))
	create(t, auto.spoke, auto.application("local"))
	auto.start(t)

	held := map[string]upgraded{
		"the mirror of an Application": {auto.hub, "local"}, "the mirror of a project": {w.hubProjects(), auto.name + "-local"},
	}
	for name, s := range spokes {
		for what, o := range s.copies() {
			held[what+" of "+name] = o
		}
	}
	before := map[string]string{}
	for what, o := range held {
		eventually(t, what+" is one of ours", func() error { return isCopy(ctx, o) })
		before[what] = string(get(t, o.where, o.name).GetUID())
	}
	theSame := func(when string) {
		t.Helper()
		for what, o := range held {
			if uid := string(get(t, o.where, o.name).GetUID()); uid != before[what] {
				t.Errorf("%s: %s is another object", when, what)
			}
		}
	}

	here, away, old := spokes["upg-here"], spokes["upg-away"], spokes["upg-old"]
	if err := away.agent.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	replace := func(p *harness.Process, program string) {
		t.Helper()
		path, err := w.h.Binary(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Replace(ctx, path); err != nil {
			t.Fatal(err)
		}
	}
	replace(w.principal.Process, "principal")
	replace(here.agent.Process, "agent")
	replace(auto.agent.Process, "agent")
	patch(t, away.hub, away.prefix+"made", specOf("targetRevision", "2"))
	replace(away.agent.Process, "agent")

	decided := get(t, hubMaps, "argomesh-hub").Object["data"].(map[string]any)
	if got := decided["default-project"]; got != "shared" {
		t.Errorf("the hub has decided %v of its project default, want shared", got)
	}
	if got := decided["mapping"]; got != mapping {
		t.Errorf("the hub maps by %v, want %s", got, mapping)
	}
	patch(t, w.hubProjects(), "default", map[string]any{"spec": map[string]any{"description": "second"}})
	patch(t, w.hubProjects(), "team", map[string]any{"spec": map[string]any{"description": "second"}})
	patch(t, hubSecrets, "repo-adopted", map[string]any{"data": map[string]any{"password": encoded("second")}})
	patch(t, hubSecrets, "repo-made", map[string]any{"data": map[string]any{"password": encoded("second")}})
	patch(t, hubMaps, "argocd-gpg-keys-cm", map[string]any{"data": map[string]any{"HUB": "second"}})
	for name, s := range spokes {
		for _, app := range []string{"made", "adopted"} {
			patch(t, s.hub, s.prefix+app, specOf("targetRevision", "3"))
			eventually(t, app+" of "+name+" follows", func() error { return field(ctx, s.spoke, s.prefix+app, "3", "spec", "source", "targetRevision") })
		}
		s.describes(t, "the project default of "+name+" follows", "second", true)
		eventually(t, "all of "+name+" follows", func() error {
			return errors.Join(
				field(ctx, s.projects, "team", "second", "spec", "description"),
				field(ctx, s.secrets, "repo-made", encoded("second"), "data", "password"),
				field(ctx, s.secrets, "repo-adopted", encoded("second"), "data", "password"),
				field(ctx, s.configMaps, "argocd-gpg-keys-cm", "second", "data", "HUB"),
				field(ctx, s.configMaps, "argocd-gpg-keys-cm", "key", "data", "OWN"),
				field(ctx, w.hub.Resource(agents, harness.ArgoCDNamespace), name, int64(0), "status", "counts", "parked"),
			)
		})
	}
	patch(t, auto.spoke, "local", specOf("targetRevision", "3"))
	patch(t, w.spoke.Resource(harness.AppProjects, auto.name), "local", map[string]any{"spec": map[string]any{"description": "second"}})
	eventually(t, "mirrors follow", func() error {
		return errors.Join(
			field(ctx, auto.hub, "local", "3", "spec", "source", "targetRevision"),
			field(ctx, w.hubProjects(), auto.name+"-local", "second", "spec", "description"),
		)
	})
	theSame("after the upgrade")
	eventually(t, "the Agent names the principal and its connection", func() error {
		agent, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, here.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		link, _, _ := unstructured.NestedMap(agent.Object, "status", "link")
		if link["connection"] == nil || link["process"] == nil || link["epoch"] == nil {
			return fmt.Errorf("status.link is %v", link)
		}
		return nil
	})

	decide(t, w.principal, "projects", map[string]any{"share_default": false})
	here.describes(t, "it is given up", "second", false)
	away.describes(t, "it is given up", "second", false)
	patch(t, w.hubProjects(), "default", map[string]any{"spec": map[string]any{"description": "third"}})
	old.describes(t, "an agent from before keeps getting it", "third", true)
	replace(old.agent.Process, "agent")
	old.describes(t, "it is given up once the agent can", "third", false)
	here.describes(t, "it stays as it was", "second", false)
	theSame("after the end of sharing")
}

// decide gives a block of the principal's configuration, and restarts it.
func decide(t *testing.T, p *harness.Principal, key string, block map[string]any) {
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
	if err == nil && there.GetAnnotations()[sourceUID] == "" {
		err = errors.New("it has no " + sourceUID)
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
