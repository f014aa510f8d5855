//go:build matrix

package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
)

// releases are those of Argo CD that are supported beside the one of our go.mod: see folder
// releases.
var releases = []string{"v3.4.13", "v3.3.19", "v3.2.6"}

// evidence is what folder releases holds against the functions of one release.
type evidence struct {
	// Decided are the paths of fields with a decision, by kind, and LeftOut those of them
	// with all that is in them.
	Decided, LeftOut map[string][]string
	// Specs are those of Applications as they are on the hub and as a spoke stores them.
	Specs []pair
	// Projects are AppProjects of a hub and what arrives of them.
	Projects []pair
	// Virtual are the same with global projects.
	Virtual []virtualPair
	// Mirrors are specs of a spoke's Applications and what the hub stores of them.
	Mirrors   []pair
	Accounts  []accounts
	Scoped    []scopedPair
	Roles     []roles
	Admission admitted
}

type pair struct{ Original, Stored any }

// accounts are projects with service accounts and what arrives of them, for a cluster that
// has other servers there and here.
type accounts struct {
	There, Here string
	Projects    []pair
}

// scopedPair is a project that permits clusters of its own alone, and what arrives of it
// where the agent's cluster has that project, if anything does.
type scopedPair struct {
	Scope            string
	Original, Stored *v1alpha1.AppProject
}

// roles are a spoke's project and its mirror. Objects are what an Application is called to
// the two.
type roles struct {
	Original, Stored *v1alpha1.AppProject
	Objects          [][2]string
}

// admitted are Applications and projects of a hub, and of which the hub says, and why, that
// they do not leave it.
type admitted struct {
	Settings string
	Projects []*v1alpha1.AppProject
	Apps     []*v1alpha1.Application
	Scoped   *corev1.Secret
	Refused  map[string]string
}

type virtualPair struct {
	Settings string
	Projects []*v1alpha1.AppProject
	Stored   *v1alpha1.AppProject
}

// TestReleases holds what we make of Applications and AppProjects against the functions of
// each supported release. It builds a good part of each.
func TestReleases(t *testing.T) {
	raw, err := json.Marshal(gather(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "evidence.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-mod=readonly", "-modfile="+release+".mod", "-v", ".")
			cmd.Dir, cmd.Env = "releases", append(os.Environ(), "EVIDENCE="+file)
			out, err := cmd.CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func gather(t *testing.T) evidence {
	t.Helper()
	e := evidence{Decided: map[string][]string{}, LeftOut: map[string][]string{}}
	for kind := range specs {
		for path, f := range decisions(t, kind) {
			e.Decided[string(kind)] = append(e.Decided[string(kind)], path)
			if f.Spoke == appspec.LeftOut && f.Hub == appspec.LeftOut {
				e.LeftOut[string(kind)] = append(e.LeftOut[string(kind)], path)
			}
		}
	}
	for _, f := range fieldsOf(reflect.TypeFor[v1alpha1.ApplicationSpec]()) {
		for _, value := range f.values() {
			spec := f.alone(value)
			e.Specs = append(e.Specs, pair{spec, storedSpec(t, spec)})
		}
	}
	var projects []*v1alpha1.AppProject
	for i, window := range windows() {
		projects = append(projects, open(fmt.Sprintf("p-%d", i), func(spec *v1alpha1.AppProjectSpec) { spec.SyncWindows = v1alpha1.SyncWindows{window} }))
	}
	for i, copied := range copiesOf(t, stream.Managed, nil, projects...) {
		e.Projects = append(e.Projects, pair{projects[i], copied})
	}
	some := []*v1alpha1.AppProject{labelled("web", "a", func(*v1alpha1.AppProjectSpec) {}), globalProject("frozen"), globalProject("audited")}
	for _, settings := range globalSettings() {
		run(t, stream.Managed, func(w *linkEnv) {
			w.put(w.hub, settingsKey, settingsWith(settings))
			for _, p := range some {
				w.put(w.hub, projectKey(p.Name), p)
			}
			w.settle()
			var copied v1alpha1.AppProject
			if !w.read(w.spoke, projectKey("web"), &copied) {
				t.Fatal("the project did not arrive")
			}
			e.Virtual = append(e.Virtual, virtualPair{settings, some, &copied})
		})
	}
	e.gatherMirrors(t)
	e.gatherAccounts(t)
	e.gatherScoped(t)
	e.gatherRoles(t)
	a := chance{rand.New(rand.NewPCG(1, 2))}.admission() //nolint:gosec // it is a test's
	e.Admission = admitted{globalsOfTeam, a.projects, a.apps, a.scoped, a.refused(t)}
	return e
}

func (e *evidence) gatherMirrors(t *testing.T) {
	t.Helper()
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: theAgent(t), Namespace: argocd, ClusterServer: clusterServer}}}
	for _, f := range fieldsOf(reflect.TypeFor[v1alpha1.ApplicationSpec]()) {
		for _, value := range f.values() {
			spec := f.alone(value)
			required(t, reflect.TypeFor[v1alpha1.ApplicationSpec](), spec)
			e.Mirrors = append(e.Mirrors, pair{spec, plannedSpec(t, rules, appKey(agentName), spec)})
		}
	}
}

func (e *evidence) gatherAccounts(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // it is a test's
	for _, side := range impersonations() {
		of := accounts{There: side.there.Server, Here: side.here.Server}
		projects := accountsOf(random, side.servers...)
		for i, copied := range copiesOf(t, side.mode, nil, projects...) {
			of.Projects = append(of.Projects, pair{projects[i], copied})
		}
		e.Accounts = append(e.Accounts, of)
	}
}

func (e *evidence) gatherScoped(t *testing.T) {
	t.Helper()
	p := open("web", func(spec *v1alpha1.AppProjectSpec) { spec.PermitOnlyProjectScopedClusters = true })
	for _, scope := range []string{"web", "shop", ""} {
		copied := copiesOf(t, stream.Managed, func(r *ownership.Rules) { r.ClusterProject = scope }, p)[0]
		e.Scoped = append(e.Scoped, scopedPair{scope, p, copied})
	}
}

func (e *evidence) gatherRoles(t *testing.T) {
	t.Helper()
	for _, test := range mirroredRoles() {
		original := project([]string{"*"})
		original.Spec.Roles = []v1alpha1.ProjectRole{{Name: "admin", Policies: test.policies, Groups: []string{"evil"}}}
		of := roles{Original: original, Stored: mirrorOf(t, test.pairs, original.Spec.Roles)}
		pairs := test.pairs
		if pairs == nil {
			pairs = []mapping.Pair{{Hub: agentName}}
		}
		for _, namespaces := range pairs {
			for _, app := range []string{"shop", "shop-1", "a"} {
				there := "web/" + app
				if namespaces.Spoke != "" {
					there = "web/" + namespaces.Spoke + "/" + app
				}
				of.Objects = append(of.Objects, [2]string{there, "edge-1-web/" + namespaces.Hub + "/" + app})
			}
		}
		e.Roles = append(e.Roles, of)
	}
}
