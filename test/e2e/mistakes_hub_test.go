//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// mistakenHub is a hub that maps by destination and has no application controller, with one
// managed agent, whose spoke has an AppProject default of its owner's.
type mistakenHub struct {
	w         *quietWorld
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
	w, err := startQuietControlPlanes(t.Context(), harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.hub.EnsureNamespace(t.Context(), mistaken), w.spoke.EnsureNamespace(t.Context(), mistakenAgent)); err != nil {
		t.Fatal(err)
	}
	h := &mistakenHub{w: w}
	create(t, w.spoke.Resource(harness.AppProjects, mistakenAgent), projectNamed("default"))
	h.principal = w.mappedPrincipal(t, mistaken, harness.Settings{"mapping.by": "", "hub.application_controller": false})
	h.agent = w.mappedAgent(t, mistaken, mistakenAgent, h.principal, harness.Settings{"policy.projects": []string{"*"}, "policy.operations": []string{"refresh"}})
	hubMistakes(h).happen(t)
}

func hubMistakes(h *mistakenHub) mistakes {
	return mistakes{h.noSuchCluster(), h.defaultNotShared(), h.nameTaken(), h.syncRefused(), h.stopped(), h.suspended(), h.namespacesUnread(), h.settingDiffers()}
}

func (h *mistakenHub) onHub() dynamic.ResourceInterface {
	return h.w.hub.Resource(harness.Applications, mistaken)
}

func (h *mistakenHub) onSpoke() dynamic.ResourceInterface {
	return h.w.spoke.Resource(harness.Applications, mistakenAgent)
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
func (h *mistakenHub) says(name string) func(*scene) (string, time.Time, error) {
	return func(s *scene) (string, time.Time, error) { return inCondition(s, h.onHub(), name, "ArgomeshError") }
}

// quiet is nil when an Application says nothing of that kind any more.
func (h *mistakenHub) quiet(ctx context.Context, name string) error {
	o, err := h.onHub().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if c := conditionIn(o, "ArgomeshError"); c != nil {
		return fmt.Errorf("it says %v", c["message"])
	}
	return nil
}

func (h *mistakenHub) noSuchCluster() mistake {
	const name = "nowhere"
	return mistake{
		person: "an Application whose destination is no cluster, on a hub without application controller",
		does:   func(s *scene) { create(s.T, h.onHub(), aimedAt("mistaken-l", name)) },
		on:     "condition `ArgomeshError` of the Application", within: told10,
		told: h.says(name),
		says: "nothing deploys it: Argo CD does not know the cluster of its destination, and this hub has no application controller; make an agent its destination (destination.name; agentctl agent list shows them)",
		cure: func(s *scene) {
			listed := strings.Fields(s.run(h.w.h, h.w.hub, mistaken, s.find(`agentctl agent list`)+" --no-headers"))
			if len(listed) == 0 {
				s.Fatal("it shows none")
			}
			patch(s.T, h.onHub(), name, merged("spec."+s.find(`\((destination\.name);`), listed[0]))
		},
		cured: func(s *scene) error { // it is for the agent now, which says more: the next row
			text, _, err := h.says(name)(s)
			if err == nil && strings.Contains(text, "nothing deploys it") {
				err = errors.New(text)
			}
			return err
		},
	}
}

func (h *mistakenHub) defaultNotShared() mistake {
	const name = "of-default"
	return mistake{
		person: "an Application of the project `default`, which is not shared",
		does: func(s *scene) {
			create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			s.discard(h.onHub(), name)
			s.discard(h.onHub(), "nowhere")
		},
		on: "condition `ArgomeshError` of the Application", within: told10,
		told: h.says(name),
		says: `policy.projects of the spoke does not allow project "default" by its very name, and the one on the spoke is not the hub's; the hub's comes with projects.share_default of the principal and appproject/default in policy.adopt of the spoke`,
		cure: func(s *scene) {
			s.reconfigure(h.principal.Process, h.principal.ConfigFile, s.find(`with (projects\.share_default) of the principal`), true)
			s.reconfigure(h.agent.Process, h.agent.ConfigFile, s.find(`in (policy\.adopt) of the spoke`), []any{s.find(`and (\S+) in policy\.adopt`)})
		},
		cured: func(s *scene) error {
			return errors.Join(there(s.Context(), h.onSpoke(), name), h.quiet(s.Context(), name))
		},
	}
}

func (h *mistakenHub) nameTaken() mistake {
	const name = "taken"
	return mistake{
		person: "an Application of a name that one of the spoke's own has",
		does: func(s *scene) {
			create(s.T, h.onSpoke(), aimedAt("in-cluster", name))
			s.act = time.Now()
			create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			s.discard(h.onHub(), name)
		},
		on: "condition `ArgomeshError` of the Application", within: told10,
		told: h.says(name),
		says: "the Application of that name on the spoke is its owner's: rename or remove one of the two, or allow its adoption: policy.adopt of the spoke does not name application/taken",
		cure: func(s *scene) {
			s.reconfigure(h.agent.Process, h.agent.ConfigFile, s.find(`(policy\.adopt) of the spoke`), []any{"appproject/default", s.find(`does not name (\S+)`)})
		},
		cured: func(s *scene) error {
			return errors.Join(h.quiet(s.Context(), name), h.isCopy(s.Context(), name))
		},
	}
}

// isCopy is nil when an Application on the spoke is a copy of the hub's.
func (h *mistakenHub) isCopy(ctx context.Context, name string) error {
	o, err := h.onSpoke().Get(ctx, name, metav1.GetOptions{})
	if err == nil && o.GetAnnotations()[sourceUID] == "" {
		err = errors.New("it is no copy")
	}
	return err
}

func (h *mistakenHub) syncRefused() mistake {
	const name = "of-default"
	sync := func(s *scene) {
		patch(s.T, h.onHub(), name, map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": "1"}}})
	}
	return mistake{
		person: "a sync on a spoke whose owner does not allow it",
		does: func(s *scene) {
			create(s.T, h.onHub(), aimedAt(mistakenAgent, name))
			s.discard(h.onHub(), name)
			eventually(s.T, "it is on the spoke", func() error { return there(s.Context(), h.onSpoke(), name) })
			s.act = time.Now()
			sync(s)
		},
		on: "the operation of the Application", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			state, err := child(s.Context(), h.onHub(), name, "status", "operationState")
			if err != nil {
				return "", time.Time{}, err
			}
			at, err := time.Parse(time.RFC3339, fmt.Sprint(state["finishedAt"]))
			return fmt.Sprint(state["message"]), at, err
		},
		says: "policy.operations of the spoke does not allow sync",
		cure: func(s *scene) {
			s.reconfigure(h.agent.Process, h.agent.ConfigFile, s.find(`(policy\.operations) of the spoke`), []any{"refresh", s.find(`does not allow (\S+)`)})
			sync(s)
		},
		cured: func(s *scene) error {
			_, err := child(s.Context(), h.onSpoke(), name, "operation")
			return err
		},
	}
}

func (h *mistakenHub) namespacesUnread() mistake {
	registry := func() dynamic.ResourceInterface { return h.w.hub.Resource(agents, mistaken) }
	return mistake{
		person: "`spec.mapping.namespaces` of a managed Agent on a hub that maps by destination",
		does: func(s *scene) {
			patch(s.T, registry(), mistakenAgent, map[string]any{"spec": map[string]any{"mapping": map[string]any{"namespaces": []any{map[string]any{"hub": "mistaken-web"}}}}})
		},
		on: "condition `MappingIgnored` of the Agent", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			return inCondition(s, registry(), mistakenAgent, "MappingIgnored")
		},
		says: "spec.mapping.namespaces is not read: this hub maps by destination, so an Application is this agent's by its destination, in namespaces that mapping.namespaces of the principal admits; remove it from the Agent",
		cure: func(s *scene) {
			s.find("remove it from the Agent")
			patch(s.T, registry(), mistakenAgent, merged(s.find(`^(\S+) is not read`), nil))
		},
		cured: func(s *scene) error { return h.mapsAsAsked(s.Context()) },
	}
}

// mapsAsAsked is nil when the Agent says nothing of a mapping that is ignored.
func (h *mistakenHub) mapsAsAsked(ctx context.Context) error {
	o, err := h.w.hub.Resource(agents, mistaken).Get(ctx, mistakenAgent, metav1.GetOptions{})
	if err == nil && conditionIn(o, "MappingIgnored") != nil {
		err = errors.New("the condition is still there")
	}
	return err
}

func (h *mistakenHub) settingDiffers() mistake {
	return mistake{
		person: "`mapping.by` of the principal that is not the hub's mapping",
		does: func(s *scene) {
			s.reconfigure(h.principal.Process, h.principal.ConfigFile, "mapping.by", "namespace")
			s.act = time.Now()
		},
		on: "condition `MappingIgnored` of each Agent", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			return inCondition(s, h.w.hub.Resource(agents, mistaken), mistakenAgent, "MappingIgnored")
		},
		says: "mapping.by of the principal is namespace, and this hub maps by destination, which stays in force: leave the setting out, or make it destination; agentctl hub set-mapping changes the mapping of the hub",
		cure: func(s *scene) {
			s.find("leave the setting out")
			s.reconfigure(h.principal.Process, h.principal.ConfigFile, s.find(`^(\S+) of the principal`), nil)
		},
		cured: func(s *scene) error { return h.mapsAsAsked(s.Context()) },
	}
}
