package argocd

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// evidence is that of test/argocd.
type evidence struct {
	Decided, LeftOut map[string][]string
	Specs            []struct{ Original, Stored v1alpha1.ApplicationSpec }
	Projects         []struct{ Original, Stored v1alpha1.AppProject }
	Virtual          []struct {
		Settings string
		Projects []*v1alpha1.AppProject
		Stored   v1alpha1.AppProject
	}
	Mirrors  []struct{ Original, Stored json.RawMessage }
	Accounts []struct {
		There, Here string
		Projects    []struct{ Original, Stored v1alpha1.AppProject }
	}
	Scoped []struct {
		Scope            string
		Original, Stored *v1alpha1.AppProject
	}
	Roles []struct {
		Original, Stored *v1alpha1.AppProject
		Objects          [][2]string
	}
	Admission struct {
		Settings string
		Projects []*v1alpha1.AppProject
		Apps     []*v1alpha1.Application
		Scoped   *corev1.Secret
		Refused  map[string]string
	}
}

// bytesOf is what the file has, with its objects as they are.
type bytesOf struct {
	Specs, Mirrors, Projects []struct{ Original, Stored json.RawMessage }
	Accounts                 []struct {
		Projects []struct{ Original, Stored json.RawMessage }
	}
}

func read(t *testing.T) (e evidence) {
	t.Helper()
	readInto(t, &e)
	if len(e.Specs) < 300 || len(e.Projects) < 200 || len(e.Virtual) < 10 || len(e.Mirrors) < 300 || len(e.Accounts) < 2 || len(e.Scoped) < 3 ||
		len(e.Roles) < 5 || len(e.Admission.Apps) < 400 {
		t.Fatal("the file lacks most")
	}
	return e
}

func readInto(t *testing.T, e any) {
	t.Helper()
	file := os.Getenv("EVIDENCE")
	if file == "" {
		t.Skip("run by TestReleases of test/argocd: go test -tags matrix -run TestReleases ./test/argocd")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, e); err != nil {
		t.Fatal(err)
	}
}

// Each field of this release has a decision.
func TestEveryFieldIsDecided(t *testing.T) {
	e := read(t)
	for kind, spec := range map[string]reflect.Type{
		"AppProject": reflect.TypeFor[v1alpha1.AppProjectSpec](), "Application": reflect.TypeFor[v1alpha1.ApplicationSpec](),
	} {
		for _, f := range fieldsOf(spec) {
			left := slices.ContainsFunc(e.LeftOut[kind], func(path string) bool { return strings.HasPrefix(f.path, path+"[].") })
			if !left && !slices.Contains(e.Decided[kind], f.path) {
				t.Errorf("nobody decided about %s of %s", f.path, kind)
			}
		}
	}
}

// A window is for the same Applications, and the project permits the same, on both sides.
func TestProjects(t *testing.T) {
	held := 0
	for _, p := range read(t).Projects {
		held += compare(t, &p.Original, &p.Stored)
	}
	if held == 0 {
		t.Error("no window is for anything")
	}
}

// compare holds the copy of a project on a spoke against the project, and returns how often a
// window was for an Application.
func compare(t *testing.T, original, copied *v1alpha1.AppProject) (held int) {
	t.Helper()
	const server = "https://proxy:9090/agents/edge-1"
	on := func(p *v1alpha1.AppProject, to v1alpha1.ApplicationDestination, name string) bool {
		app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ApplicationSpec{Destination: to}}
		return p.Spec.SyncWindows.Matches(app).HasWindows()
	}
	for _, namespace := range []string{"web", "db", "frozen"} {
		for _, name := range []string{"shop", "other", "third"} {
			want := on(original, v1alpha1.ApplicationDestination{Name: "edge-1", Namespace: namespace}, name) ||
				on(original, v1alpha1.ApplicationDestination{Server: server, Namespace: namespace}, name)
			got := on(copied, v1alpha1.ApplicationDestination{Name: "in-cluster", Namespace: namespace}, name)
			if got != want {
				t.Errorf("windows of %s for %s in %s: %t on the spoke, %t on the hub", original.Name, name, namespace, got, want)
			} else if got {
				held++
			}
		}
		want, err := original.IsDestinationPermitted(&v1alpha1.Cluster{Name: "edge-1", Server: server}, namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := copied.IsDestinationPermitted(&v1alpha1.Cluster{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}, namespace, nil)
		if err != nil || got != want {
			t.Errorf("%s permits %s: %t, %v on the spoke, %t on the hub", original.Name, namespace, got, err, want)
		}
	}
	return held
}
