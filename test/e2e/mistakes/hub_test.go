//go:build linux

package mistakes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// mistakenHub is a hub that maps by destination and has no application controller, with one
// managed agent, whose spoke has an AppProject default of its owner's.
type mistakenHub struct {
	w         *env.Bare
	principal *harness.Principal
	agent     *harness.Agent
}

// The names of that hub's namespace, which is its Argo CD's, and of its agent.
const mistaken, mistakenAgent = "mistaken", "mistaken-1"

// TestMistakesOfHub are those that people make with a hub that maps by destination, and with
// what a spoke's owner allows. They follow one another, since most restart something. It has
// control planes of its own: a hub without application controller says of every Application
// in its cluster that nothing deploys it, and those of hubs beside it are thousands.
func TestMistakesOfHub(t *testing.T) {
	t.Parallel()
	w, err := env.StartBareControlPlanes(t.Context(), harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Hub.EnsureNamespace(t.Context(), mistaken), w.Spoke.EnsureNamespace(t.Context(), mistakenAgent)); err != nil {
		t.Fatal(err)
	}
	h := &mistakenHub{w: w}
	env.Create(t, w.Spoke.Resource(harness.AppProjects, mistakenAgent), env.ProjectNamed("default"))
	h.principal = w.MappedPrincipal(t, mistaken, harness.Settings{"mapping.by": "", "hub.application_controller": false})
	h.agent = w.MappedAgent(t, mistaken, mistakenAgent, h.principal, harness.Settings{"policy.projects": []string{"*"}, "policy.operations": []string{"refresh"}})
	hubMistakes(h).Happen(t)
}

func hubMistakes(h *mistakenHub) mistake.List {
	return mistake.List{h.noSuchCluster(), h.defaultNotShared(), h.nameTaken(), h.syncRefused(), h.stopped(), h.suspended(), h.namespacesUnread(), h.settingDiffers()}
}

func (h *mistakenHub) onHub() dynamic.ResourceInterface {
	return h.w.Hub.Resource(harness.Applications, mistaken)
}

func (h *mistakenHub) onSpoke() dynamic.ResourceInterface {
	return h.w.Spoke.Resource(harness.Applications, mistakenAgent)
}

// aimedAt is an Application of the project default.
func aimedAt(destination, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"project": "default", "destination": map[string]any{"name": destination, "namespace": "default"},
			"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
		},
	}}
}

// says is told for condition ArgomeshError of an Application.
func (h *mistakenHub) says(name string) func(*mistake.Scene) (string, time.Time, error) {
	return func(s *mistake.Scene) (string, time.Time, error) {
		return inCondition(s, h.onHub(), name, "ArgomeshError")
	}
}

// quiet is nil when an Application says nothing of that kind any more.
func (h *mistakenHub) quiet(ctx context.Context, name string) error {
	o, err := h.onHub().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if c := env.ConditionIn(o, "ArgomeshError"); c != nil {
		return fmt.Errorf("it says %v", c["message"])
	}
	return nil
}

func (h *mistakenHub) noSuchCluster() mistake.Mistake {
	const name = "nowhere"
	return mistake.Mistake{
		Person: "an Application whose destination is no cluster, on a hub without application controller",
		Does:   func(s *mistake.Scene) { env.Create(s.T, h.onHub(), aimedAt("mistaken-l", name)) },
		On:     "condition `ArgomeshError` of the Application", Within: told10,
		Told: h.says(name),
		Says: "nothing deploys it: Argo CD does not know the cluster of its destination, and this hub has no application controller; make an agent its destination (destination.name; agentctl agent list shows them)",
		Cure: func(s *mistake.Scene) {
			listed := strings.Fields(run(s, h.w.Harness, h.w.Hub, mistaken, s.Find(`agentctl agent list`)+" --no-headers"))
			if len(listed) == 0 {
				s.Fatal("it shows none")
			}
			env.Patch(s.T, h.onHub(), name, mistake.Merged("spec."+s.Find(`\((destination\.name);`), listed[0]))
		},
		Cured: func(s *mistake.Scene) error { // it is for the agent now, which says more: the next row
			text, _, err := h.says(name)(s)
			if err == nil && strings.Contains(text, "nothing deploys it") {
				err = errors.New(text)
			}
			return err
		},
	}
}

func (h *mistakenHub) defaultNotShared() mistake.Mistake {
	const name = "of-default"
	return mistake.Mistake{
		Person: "an Application of the project `default`, which is not shared",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			discard(s, h.onHub(), name)
			discard(s, h.onHub(), "nowhere")
		},
		On: "condition `ArgomeshError` of the Application", Within: told10,
		Told: h.says(name),
		Says: `policy.projects of the spoke does not allow project "default" by its very name, and the one on the spoke is not the hub's; the hub's comes with projects.share_default of the principal and appproject/default in policy.adopt of the spoke`,
		Cure: func(s *mistake.Scene) {
			reconfigure(s, h.principal.Process, h.principal.ConfigFile, s.Find(`with (projects\.share_default) of the principal`), true)
			reconfigure(s, h.agent.Process, h.agent.ConfigFile, s.Find(`in (policy\.adopt) of the spoke`), []any{s.Find(`and (\S+) in policy\.adopt`)})
		},
		Cured: func(s *mistake.Scene) error {
			return errors.Join(env.Exists(s.Context(), h.onSpoke(), name), h.quiet(s.Context(), name))
		},
	}
}

func (h *mistakenHub) nameTaken() mistake.Mistake {
	const name = "taken"
	return mistake.Mistake{
		Person: "an Application of a name that one of the spoke's own has",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, h.onSpoke(), aimedAt("in-cluster", name))
			s.Act = time.Now()
			env.Create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			discard(s, h.onHub(), name)
		},
		On: "condition `ArgomeshError` of the Application", Within: told10,
		Told: h.says(name),
		Says: "the Application of that name on the spoke is its owner's: rename or remove one of the two, or allow its adoption: policy.adopt of the spoke does not name application/taken",
		Cure: func(s *mistake.Scene) {
			reconfigure(s, h.agent.Process, h.agent.ConfigFile, s.Find(`(policy\.adopt) of the spoke`), []any{"appproject/default", s.Find(`does not name (\S+)`)})
		},
		Cured: func(s *mistake.Scene) error {
			return errors.Join(h.quiet(s.Context(), name), h.isCopy(s.Context(), name))
		},
	}
}

// isCopy is nil when an Application on the spoke is a copy of the hub's.
func (h *mistakenHub) isCopy(ctx context.Context, name string) error {
	o, err := h.onSpoke().Get(ctx, name, metav1.GetOptions{})
	if err == nil && o.GetAnnotations()[env.SourceUID] == "" {
		err = errors.New("it is no copy")
	}
	return err
}

func (h *mistakenHub) syncRefused() mistake.Mistake {
	const name = "of-default"
	sync := func(s *mistake.Scene) {
		env.Patch(s.T, h.onHub(), name, map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": "1"}}})
	}
	return mistake.Mistake{
		Person: "a sync on a spoke whose owner does not allow it",
		Does: func(s *mistake.Scene) {
			env.Create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			discard(s, h.onHub(), name)
			env.Eventually(s.T, "it is on the spoke", func() error { return env.Exists(s.Context(), h.onSpoke(), name) })
			s.Act = time.Now()
			sync(s)
		},
		On: "the operation of the Application", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			state, err := env.FieldsOf(s.Context(), h.onHub(), name, "status", "operationState")
			if err != nil {
				return "", time.Time{}, err
			}
			at, err := time.Parse(time.RFC3339, fmt.Sprint(state["finishedAt"]))
			return fmt.Sprint(state["message"]), at, err
		},
		Says: "policy.operations of the spoke does not allow sync",
		Cure: func(s *mistake.Scene) {
			reconfigure(s, h.agent.Process, h.agent.ConfigFile, s.Find(`(policy\.operations) of the spoke`), []any{"refresh", s.Find(`does not allow (\S+)`)})
			sync(s)
		},
		Cured: func(s *mistake.Scene) error {
			_, err := env.FieldsOf(s.Context(), h.onSpoke(), name, "operation")
			return err
		},
	}
}

func (h *mistakenHub) namespacesUnread() mistake.Mistake {
	registry := func() dynamic.ResourceInterface { return h.w.Hub.Resource(env.Agents, mistaken) }
	return mistake.Mistake{
		Person: "`spec.mapping.namespaces` of a managed Agent on a hub that maps by destination",
		Does: func(s *mistake.Scene) {
			env.Patch(s.T, registry(), mistakenAgent, map[string]any{"spec": map[string]any{"mapping": map[string]any{"namespaces": []any{map[string]any{"hub": "mistaken-web"}}}}})
		},
		On: "condition `MappingIgnored` of the Agent", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, registry(), mistakenAgent, "MappingIgnored")
		},
		Says: "spec.mapping.namespaces is not read: this hub maps by destination, so an Application is this agent's by its destination, in namespaces that mapping.namespaces of the principal admits; remove it from the Agent",
		Cure: func(s *mistake.Scene) {
			s.Find("remove it from the Agent")
			env.Patch(s.T, registry(), mistakenAgent, mistake.Merged(s.Find(`^(\S+) is not read`), nil))
		},
		Cured: func(s *mistake.Scene) error { return h.mapsAsAsked(s.Context()) },
	}
}

// mapsAsAsked is nil when the Agent says nothing of a mapping that is ignored.
func (h *mistakenHub) mapsAsAsked(ctx context.Context) error {
	o, err := h.w.Hub.Resource(env.Agents, mistaken).Get(ctx, mistakenAgent, metav1.GetOptions{})
	if err == nil && env.ConditionIn(o, "MappingIgnored") != nil {
		err = errors.New("the condition is still there")
	}
	return err
}

func (h *mistakenHub) settingDiffers() mistake.Mistake {
	return checked(mistake.Mistake{
		Person: "`mapping.by` of the principal that is not the hub's mapping",
		Does: func(s *mistake.Scene) {
			reconfigure(s, h.principal.Process, h.principal.ConfigFile, "mapping.by", "namespace")
			s.Act = time.Now()
		},
		On: "condition `MappingIgnored` of each Agent", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, h.w.Hub.Resource(env.Agents, mistaken), mistakenAgent, "MappingIgnored")
		},
		Says: "mapping.by of the principal is namespace, and this hub maps by destination, which stays in force: leave the setting out, or make it destination; agentctl hub set-mapping changes the mapping of the hub",
		Cure: func(s *mistake.Scene) {
			s.Find("leave the setting out")
			reconfigure(s, h.principal.Process, h.principal.ConfigFile, s.Find(`^(\S+) of the principal`), nil)
		},
		Cured: func(s *mistake.Scene) error { return h.mapsAsAsked(s.Context()) },
	}, func() *env.Bare { return h.w }, mistaken, mistakenAgent, "SettingDiffers")
}
