//go:build linux

package mistakes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/harness"
)

// told10 is how soon an Application says what is wrong with it.
const told10 = 10 * time.Second

// TestMistakesOfApplications are those that people make with Applications on a hub that maps
// by namespace.
func TestMistakesOfApplications(t *testing.T) {
	t.Parallel()
	w := env.SharedArgo(t)
	for _, list := range argoMistakes(w) {
		t.Run(list[0].Person, func(t *testing.T) {
			t.Parallel()
			list.Happen(t)
		})
	}
}

func argoMistakes(w *env.Argo) []mistake.List {
	return []mistake.List{{madeInArgoCD(w)}, {madeForAutonomous(w)}, {wrongDestination(w)}, {closedProject(w)}}
}

func madeInArgoCD(w *env.Argo) mistake.Mistake {
	const name = "shop-astray"
	here := func() dynamic.ResourceInterface {
		return w.Hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	}
	flags := func() []string {
		return []string{
			"--repo", w.Repository.URL, "--path", harness.GuestbookPath, "--revision", harness.Branch, "--project", env.Project,
			"--dest-name", env.Managed, "--dest-namespace", name, "--validate=false",
		}
	}
	argocd := func(s *mistake.Scene, args ...string) {
		_, err := w.HubArgo.CLI(s.Context(), args...)
		s.Must(err)
	}
	return mistake.Mistake{
		Person: "`argocd app create shop-astray --dest-name edge-1` on a hub that maps by namespace",
		Does:   func(s *mistake.Scene) { argocd(s, append([]string{"app", "create", name}, flags()...)...) },
		On:     "condition `ArgomeshError` of the Application", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, here(), name, "ArgomeshError")
		},
		Says: "no agent takes it: its destination is agent edge-1, whose Applications are in namespace edge-1, and it is in argocd; delete it here and create it there (argocd app create edge-1/shop-astray)",
		Cure: func(s *mistake.Scene) {
			command := s.Find(`\(argocd app create (\S+)\)`)
			argocd(s, "app", "delete", name, "--cascade=false", "--yes")
			argocd(s, append([]string{"app", "create", command}, flags()...)...)
			discard(s, w.OnHub(env.Managed), name)
		},
		Cured: func(s *mistake.Scene) error { return env.Exists(s.Context(), w.OnSpoke(env.Managed), name) },
	}
}

// discard deletes an object when the test ends.
func discard(s *mistake.Scene, where dynamic.ResourceInterface, name string) {
	s.Cleanup(func() {
		_ = where.Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{}) // it may have gone
	})
}

func madeForAutonomous(w *env.Argo) mistake.Mistake {
	const name = "shop-of-hub"
	return mistake.Mistake{
		Person: "an Application made on the hub for an autonomous agent",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, w.OnHub(env.Autonomous), w.Plain(name, env.Autonomous, env.Autonomous))
		},
		On: "condition `ArgomeshError` of the Application", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, w.OnHub(env.Autonomous), name, "ArgomeshError")
		},
		Says: "no agent takes it: its destination is agent edge-2, which is autonomous: delete it here and create it on that spoke, from where it is shown",
		Cure: func(s *mistake.Scene) {
			s.Find("delete it here and create it on that spoke")
			s.Must(w.OnHub(env.Autonomous).Delete(s.Context(), name, metav1.DeleteOptions{}))
			env.Eventually(s.T, "it is gone", func() error { return env.Gone(s.Context(), w.OnHub(env.Autonomous), name) })
			env.Create(s.T, w.OnSpoke(env.Autonomous), w.Plain(name, harness.ArgoCDNamespace, ""))
			discard(s, w.OnSpoke(env.Autonomous), name)
		},
		Cured: func(s *mistake.Scene) error {
			o, err := w.OnHub(env.Autonomous).Get(s.Context(), name, metav1.GetOptions{})
			if err == nil && env.ConditionIn(o, "ArgomeshError") != nil {
				err = errors.New("it still says that no agent takes it")
			}
			return err
		},
	}
}

func wrongDestination(w *env.Argo) mistake.Mistake {
	const name = "shop-elsewhere"
	return mistake.Mistake{
		Person: "an Application in the namespace of agent edge-1 with another destination",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, w.OnHub(env.Managed), w.Plain(name, env.Managed, env.Autonomous))
			discard(s, w.OnHub(env.Managed), name)
		},
		On: "condition `ArgomeshError` of the Application", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, w.OnHub(env.Managed), name, "ArgomeshError")
		},
		Says: "not sent: the destination is not agent edge-1, to whose namespace the Application belongs; set destination.name to edge-1",
		Cure: func(s *mistake.Scene) {
			env.Patch(s.T, w.OnHub(env.Managed), name, mistake.Merged("spec."+s.Find(`set (destination\.name) to`), s.Find(`set destination\.name to (\S+)`)))
		},
		Cured: func(s *mistake.Scene) error { return env.Exists(s.Context(), w.OnSpoke(env.Managed), name) },
	}
}

func closedProject(w *env.Argo) mistake.Mistake {
	const name, in = "shop-closed", "closed"
	projects := func() dynamic.ResourceInterface { return w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace) }
	return mistake.Mistake{
		Person: "an Application of an AppProject that does not admit its namespace",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, projects(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": in, "namespace": harness.ArgoCDNamespace},
				"spec": map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": env.Managed, "namespace": "*"}}},
			}})
			discard(s, projects(), in)
			app := w.Plain(name, env.Managed, env.Managed)
			app.Object["spec"].(map[string]any)["project"] = in
			s.Act = time.Now()
			env.Create(s.T, w.OnHub(env.Managed), app)
			discard(s, w.OnHub(env.Managed), name)
		},
		On: "condition `ArgomeshError` of the Application", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, w.OnHub(env.Managed), name, "ArgomeshError")
		},
		Says: `AppProject "closed" of the hub does not admit Applications of namespace edge-1: add edge-1 to its spec.sourceNamespaces, or let the Application name another project`,
		Cure: func(s *mistake.Scene) {
			env.Patch(s.T, projects(), in, mistake.Merged(s.Find(`add \S+ to its (spec\.sourceNamespaces)`), []any{s.Find(`add (\S+) to its`)}))
		},
		Cured: func(s *mistake.Scene) error {
			if err := env.Exists(s.Context(), w.OnSpoke(env.Managed), name); err != nil {
				return fmt.Errorf("it is not on the spoke: %w", err)
			}
			return nil
		},
	}
}
