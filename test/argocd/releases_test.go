//go:build matrix

package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"

	"github.com/argomesh/argomesh/backends/mirror"
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
}

type pair struct{ Original, Stored any }

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
			if f.Spoke == mirror.LeftOut && f.Hub == mirror.LeftOut {
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
	for i, copied := range copies(t, stream.Managed, nil, projects...) {
		e.Projects = append(e.Projects, pair{projects[i], copied})
	}
	some := []*v1alpha1.AppProject{labelled("web", "a", func(*v1alpha1.AppProjectSpec) {}), globalProject("frozen"), globalProject("audited")}
	for _, settings := range globalSettings() {
		run(t, stream.Managed, func(w *world) {
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
	return e
}
