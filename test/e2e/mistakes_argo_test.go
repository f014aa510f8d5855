//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// told10 is how soon an Application says what is wrong with it.
const told10 = 10 * time.Second

// TestMistakesOfApplications are those that people make with Applications on a hub that maps
// by namespace.
func TestMistakesOfApplications(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	for _, list := range argoMistakes(w) {
		t.Run(list[0].person, func(t *testing.T) {
			t.Parallel()
			list.happen(t)
		})
	}
}

func argoMistakes(w *world) []mistakes {
	return []mistakes{{w.madeInArgoCD()}, {w.madeForAutonomous()}, {w.wrongDestination()}, {w.closedProject()}}
}

func (w *world) madeInArgoCD() mistake {
	const name = "shop-astray"
	here := func() dynamic.ResourceInterface {
		return w.hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	}
	flags := func() []string {
		return []string{
			"--repo", w.repository.URL, "--path", harness.GuestbookPath, "--revision", harness.Branch, "--project", project,
			"--dest-name", managed, "--dest-namespace", name, "--validate=false",
		}
	}
	argocd := func(s *scene, args ...string) {
		_, err := w.hubArgo.CLI(s.Context(), args...)
		s.must(err)
	}
	return mistake{
		person: "`argocd app create shop-astray --dest-name edge-1` on a hub that maps by namespace",
		does:   func(s *scene) { argocd(s, append([]string{"app", "create", name}, flags()...)...) },
		on:     "condition `ArgomeshError` of the Application", within: told10,
		told: func(s *scene) (string, time.Time, error) { return inCondition(s, here(), name, "ArgomeshError") },
		says: "no agent takes it: its destination is agent edge-1, whose Applications are in namespace edge-1, and it is in argocd; delete it here and create it there (argocd app create edge-1/shop-astray)",
		cure: func(s *scene) {
			command := s.find(`\(argocd app create (\S+)\)`)
			argocd(s, "app", "delete", name, "--cascade=false", "--yes")
			argocd(s, append([]string{"app", "create", command}, flags()...)...)
			s.discard(w.onHub(managed), name)
		},
		cured: func(s *scene) error { return there(s.Context(), w.onSpoke(managed), name) },
	}
}

// discard deletes an object when the test ends.
func (s *scene) discard(where dynamic.ResourceInterface, name string) {
	s.Cleanup(func() {
		_ = where.Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{}) // it may have gone
	})
}

func (w *world) madeForAutonomous() mistake {
	const name = "shop-of-hub"
	return mistake{
		person: "an Application made on the hub for an autonomous agent",
		does:   func(s *scene) { create(s.T, w.onHub(autonomous), w.plain(name, autonomous, autonomous)) },
		on:     "condition `ArgomeshError` of the Application", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			return inCondition(s, w.onHub(autonomous), name, "ArgomeshError")
		},
		says: "no agent takes it: its destination is agent edge-2, which is autonomous: delete it here and create it on that spoke, from where it is shown",
		cure: func(s *scene) {
			s.find("delete it here and create it on that spoke")
			s.must(w.onHub(autonomous).Delete(s.Context(), name, metav1.DeleteOptions{}))
			eventually(s.T, "it is gone", func() error { return gone(s.Context(), w.onHub(autonomous), name) })
			create(s.T, w.onSpoke(autonomous), w.plain(name, harness.ArgoCDNamespace, ""))
			s.discard(w.onSpoke(autonomous), name)
		},
		cured: func(s *scene) error {
			o, err := w.onHub(autonomous).Get(s.Context(), name, metav1.GetOptions{})
			if err == nil && conditionIn(o, "ArgomeshError") != nil {
				err = errors.New("it still says that no agent takes it")
			}
			return err
		},
	}
}

func (w *world) wrongDestination() mistake {
	const name = "shop-elsewhere"
	return mistake{
		person: "an Application in the namespace of agent edge-1 with another destination",
		does: func(s *scene) {
			create(s.T, w.onHub(managed), w.plain(name, managed, autonomous))
			s.discard(w.onHub(managed), name)
		},
		on: "condition `ArgomeshError` of the Application", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			return inCondition(s, w.onHub(managed), name, "ArgomeshError")
		},
		says: "not sent: the destination is not agent edge-1, to whose namespace the Application belongs; set destination.name to edge-1",
		cure: func(s *scene) {
			patch(s.T, w.onHub(managed), name, merged("spec."+s.find(`set (destination\.name) to`), s.find(`set destination\.name to (\S+)`)))
		},
		cured: func(s *scene) error { return there(s.Context(), w.onSpoke(managed), name) },
	}
}

func (w *world) closedProject() mistake {
	const name, in = "shop-closed", "closed"
	projects := func() dynamic.ResourceInterface { return w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace) }
	return mistake{
		person: "an Application of an AppProject that does not admit its namespace",
		does: func(s *scene) {
			create(s.T, projects(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": in, "namespace": harness.ArgoCDNamespace},
				"spec": map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": managed, "namespace": "*"}}},
			}})
			s.discard(projects(), in)
			app := w.plain(name, managed, managed)
			app.Object["spec"].(map[string]any)["project"] = in
			s.act = time.Now()
			create(s.T, w.onHub(managed), app)
			s.discard(w.onHub(managed), name)
		},
		on: "condition `ArgomeshError` of the Application", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			return inCondition(s, w.onHub(managed), name, "ArgomeshError")
		},
		says: `AppProject "closed" of the hub does not admit Applications of namespace edge-1: add edge-1 to its spec.sourceNamespaces, or let the Application name another project`,
		cure: func(s *scene) {
			patch(s.T, projects(), in, merged(s.find(`add \S+ to its (spec\.sourceNamespaces)`), []any{s.find(`add (\S+) to its`)}))
		},
		cured: func(s *scene) error {
			if err := there(s.Context(), w.onSpoke(managed), name); err != nil {
				return fmt.Errorf("it is not on the spoke: %w", err)
			}
			return nil
		},
	}
}
