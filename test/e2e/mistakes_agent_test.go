//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// newcomers is a hub that maps by namespace, whose Agents people register and run wrongly.
type newcomers struct {
	w         *quietWorld
	principal *harness.Principal
	program   string // agent
}

// beginners is the namespace of that hub's Argo CD.
const beginners = "beginners"

// TestMistakesOfAgents are those that people make when they register agents and run them.
func TestMistakesOfAgents(t *testing.T) {
	t.Parallel()
	w := theQuietWorld(t)
	if err := w.hub.EnsureNamespace(t.Context(), beginners); err != nil {
		t.Fatal(err)
	}
	n := &newcomers{w: w, principal: w.mappedPrincipal(t, beginners, harness.Settings{})}
	var err error
	if n.program, err = w.h.Binary("agent"); err != nil {
		t.Fatal(err)
	}
	for _, list := range agentMistakes(n) {
		t.Run(list[0].person, func(t *testing.T) {
			t.Parallel()
			list.happen(t)
		})
	}
}

func agentMistakes(n *newcomers) []mistakes {
	return []mistakes{
		{n.neverRan()}, {n.wrongMode()}, {n.wrongName()}, {n.wrongID()}, {n.wrongAddress()}, {n.wrongPrincipal()}, {n.oneIDTwice()},
		{n.cascadeInScript()}, {n.createdAgain()}, {n.misspeltKey()}, {n.misspeltCommand()}, {n.wrongNamespace()}, {n.setMapping()},
	}
}

func (n *newcomers) registry() dynamic.ResourceInterface { return n.w.hub.Resource(agents, beginners) }

// agentctl runs agentctl on the hub.
func (n *newcomers) agentctl(s *scene, args ...string) (string, error) {
	return n.w.h.Agentctl(s.Context(), n.w.hub, append([]string{"--namespace", beginners}, args...)...)
}

// register registers an agent.
func (n *newcomers) register(s *scene, name, mode, id string, more ...string) {
	_, err := n.agentctl(s, append([]string{"agent", "create", name, "--mode", mode, "--spiffe-id", id, "--wait"}, more...)...)
	s.must(err)
	s.discard(n.registry(), name)
}

// start runs an agent, which ends with the test.
func (n *newcomers) start(s *scene, process, name, mode, id string) *harness.Agent {
	spire, err := n.w.identify(s.Context(), id)
	s.must(err)
	s.must(n.w.spoke.EnsureNamespace(s.Context(), process))
	a, err := n.w.h.StartAgent(s.Context(), harness.AgentConfig{
		Name: name, Mode: mode, Process: process, ControlPlane: n.w.spoke, WorkloadAPI: spire,
		PrincipalAddress: n.principal.Address, PrincipalIDs: []string{principalID}, Settings: harness.Settings{"namespace": process},
	})
	s.must(err)
	s.Cleanup(func() {
		if err := a.Stop(context.WithoutCancel(s.Context())); err != nil {
			s.Error(err)
		}
	})
	return a
}

// connected is nil when an agent is.
func (n *newcomers) connected(name string) func(*scene) error {
	return func(s *scene) error { return field(s.Context(), n.registry(), name, true, "status", "connected") }
}

// refusedSince is told for condition Connected of an Agent that refuses, which says itself
// since when: it was False before.
func (n *newcomers) refusedSince(name string) func(*scene) (string, time.Time, error) {
	return func(s *scene) (string, time.Time, error) {
		text, _, err := inCondition(s, n.registry(), name, "Connected")
		if err != nil {
			return "", time.Time{}, err
		}
		_, rest, _ := strings.Cut(text, "refused since ")
		when, _, _ := strings.Cut(rest, ": ")
		at, err := time.Parse(time.RFC3339, when)
		if err != nil {
			return "", time.Time{}, fmt.Errorf("it says %q", text)
		}
		return text, at, nil
	}
}

func (n *newcomers) neverRan() mistake {
	const name = "idle-1"
	return mistake{
		person: "an Agent whose agent does not run",
		does:   func(s *scene) { n.register(s, name, "managed", idOf(name)) },
		on:     "`agentctl agent describe`, and condition `Connected` of the Agent", within: told10,
		told: func(s *scene) (string, time.Time, error) {
			shown, err := n.agentctl(s, "agent", "describe", name)
			if err != nil || !strings.Contains(shown, "Never connected") {
				return "", time.Time{}, errors.Join(err, fmt.Errorf("it shows %s", shown))
			}
			return inCondition(s, n.registry(), name, "Connected")
		},
		says: "no agent has connected yet: run one with name idle-1, mode managed and SPIFFE ID spiffe://e2e.argomesh.test/argomesh/agent/idle-1; one that has another ID is shown by agentctl agent list --unknown",
		cure: func(s *scene) {
			n.start(s, name, s.find(`with name (\S+),`), s.find(`mode (\S+) and`), s.find(`SPIFFE ID (\S+);`))
		},
		cured: n.connected(name),
	}
}

// otherwise is a mistake whose agent is registered as managed with a SPIFFE ID, and runs with
// one of its own, under another name or in another mode; a is that agent, once it runs. Unless
// m says more, condition Connected tells it, and the cure is to set what that names in the
// agent's configuration.
func (n *newcomers) otherwise(a *harness.Agent, m mistake, name, registered, runsAs, mode string) mistake {
	m.does = func(s *scene) {
		n.register(s, name, "managed", registered)
		s.act = time.Now() // the mistake is to run it so
		*a = *n.start(s, name, runsAs, mode, idOf(name))
	}
	if m.told == nil {
		m.on, m.within, m.told = "condition `Connected` of the Agent", told10, n.refusedSince(name)
	}
	if m.cure == nil {
		m.cure = func(s *scene) {
			s.reconfigure(a.Process, a.ConfigFile, s.find(`set (\S+) to \S+ in the agent's configuration`), s.find(`set \S+ to "?([^" ]+)"? in`))
		}
	}
	m.cured = n.connected(name)
	return m
}

func (n *newcomers) wrongMode() mistake {
	const name = "mode-1"
	return n.otherwise(new(harness.Agent), mistake{
		person: "an agent that runs in another mode than the Agent has",
		says:   "refused since …: the agent is configured as autonomous, and registered as managed: set mode to managed in the agent's configuration, or delete this Agent and create it again as autonomous",
	}, name, idOf(name), name, "autonomous")
}

func (n *newcomers) wrongName() mistake {
	const name = "name-1"
	return n.otherwise(new(harness.Agent), mistake{
		person: "an agent that runs under another name than the Agent has",
		says:   `refused since …: the agent that has this SPIFFE ID is configured with the name "noname-1": set name to "name-1" in the agent's configuration, or take the SPIFFE ID from this Agent to Agent noname-1`,
	}, name, idOf(name), "noname-1", "managed")
}

func (n *newcomers) wrongID() mistake {
	const name = "unknown-1"
	a := new(harness.Agent)
	return n.otherwise(a, mistake{
		person: "an agent with a SPIFFE ID that no Agent has",
		on:     "`/readyz` of the agent, and `agentctl agent list --unknown`", within: 70 * time.Second,
		told: func(s *scene) (string, time.Time, error) {
			_, body, err := fetch(s.Context(), "http://"+a.AdminAddress+"/readyz")
			if err != nil {
				return "", time.Time{}, err
			}
			listed, err := n.agentctl(s, "agent", "list", "--unknown")
			if err == nil && !strings.Contains(listed, idOf(name)+" ") {
				err = fmt.Errorf("it lists %s", listed)
			}
			return body + listed, time.Time{}, err
		},
		says: "[-] principal: refused by the hub…agentctl agent set unknown-1 --spiffe-id ID…",
		cure: func(s *scene) {
			command := s.find(`agentctl agent set \S+ --spiffe-id `)
			s.run(n.w.h, n.w.hub, beginners, command+s.find(`(?m)^(spiffe://\S+/unknown-1) `))
		},
	}, name, idOf("somebody-else"), name, "managed")
}

// doctor runs agentctl identity doctor with an identity of its own.
func (n *newcomers) doctor(s *scene, name, address, principal string) (string, error) {
	spire, err := n.w.identify(s.Context(), idOf(name))
	s.must(err)
	return n.agentctl(s, "identity", "doctor", "--socket", spire.Socket, "--principal", address, "--principal-id", principal, "--agent", name, "--output", "wide")
}

func (n *newcomers) wrongAddress() mistake {
	const name = "address-1"
	return mistake{
		person: "an address at which no principal listens",
		does: func(s *scene) {
			n.register(s, name, "managed", idOf(name))
			nobody, err := n.w.h.Address()
			s.must(err)
			s.answer(n.doctor(s, name, nobody, principalID))
		},
		on: "`agentctl identity doctor` on the spoke", told: printed,
		says: "problem: principal …cure: check the address, that the principal runs, and that our Workload API has the bundle of its trust domain",
		cure: func(s *scene) {
			s.find("check the address")
			out, err := n.doctor(s, name, n.principal.Address, principalID)
			s.must(err)
			s.said = out
		},
		cured: func(s *scene) error { return knows(s.said, name) },
	}
}

// knows is nil when doctor says that the principal knows an agent.
func knows(out, name string) error {
	if !strings.Contains(out, "knows our SPIFFE ID for agent "+name) {
		return errors.New(out)
	}
	return nil
}

func (n *newcomers) wrongPrincipal() mistake {
	const name = "impostor-1"
	return mistake{
		person: "another SPIFFE ID than the principal has",
		does: func(s *scene) {
			n.register(s, name, "managed", idOf(name))
			s.answer(n.doctor(s, name, n.principal.Address, "spiffe://"+trustDomain+"/argomesh/principle"))
		},
		on: "`agentctl identity doctor` on the spoke", told: printed,
		says: "problem: principal … is spiffe://e2e.argomesh.test/argomesh/principal, which is not accepted; cure: correct principal.spiffe_ids of the agent, or --principal-id, if that is the principal",
		cure: func(s *scene) {
			out, err := n.doctor(s, name, n.principal.Address, s.find(` is (\S+), which is not accepted`))
			s.must(err)
			s.said = out
		},
		cured: func(s *scene) error { return knows(s.said, name) },
	}
}

func (n *newcomers) oneIDTwice() mistake {
	const older, name = "twice-1", "twice-2"
	return mistake{
		person: "two Agents with one SPIFFE ID",
		does: func(s *scene) {
			n.register(s, older, "managed", idOf(older))
			s.act = time.Now()
			_, err := n.agentctl(s, "agent", "create", name, "--mode", "managed", "--spiffe-id", idOf(older))
			s.must(err)
			s.discard(n.registry(), name)
		},
		on: "condition `Conflict` of the newer Agent", within: told10,
		told: func(s *scene) (string, time.Time, error) { return inCondition(s, n.registry(), name, "Conflict") },
		says: "SPIFFE ID spiffe://e2e.argomesh.test/argomesh/agent/twice-1 belongs to the older Agent twice-1: give this Agent another, by agentctl agent set twice-2 --spiffe-id ID, or delete the older one",
		cure: func(s *scene) {
			s.run(n.w.h, n.w.hub, beginners, s.find(`agentctl agent set \S+ --spiffe-id `)+idOf(name))
		},
		cured: func(s *scene) error {
			o, err := n.registry().Get(s.Context(), name, metav1.GetOptions{})
			if err == nil && conditionIn(o, "Conflict")["status"] == "True" {
				err = errors.New("the conflict is still there")
			}
			return err
		},
	}
}

func (n *newcomers) cascadeInScript() mistake {
	const name = "cascade-1"
	command := []string{"agent", "delete", name, "--cascade", "--wait=false"}
	return mistake{
		person: "`agentctl agent delete --cascade` in a script",
		does: func(s *scene) {
			n.register(s, name, "managed", idOf(name))
			s.answer(n.agentctl(s, command...))
			if err := there(s.Context(), n.registry(), name); err != nil {
				s.Errorf("it is deleted: %v", err)
			}
		},
		on: "`agentctl`", told: printed,
		says: "there is no terminal to ask on: say --yes",
		cure: func(s *scene) {
			_, err := n.agentctl(s, append(command, s.find(`say (--\S+)`))...)
			s.must(err)
		},
		cured: func(s *scene) error {
			o, err := n.registry().Get(s.Context(), name, metav1.GetOptions{})
			if err == nil && o.GetDeletionTimestamp() == nil {
				return errors.New("it is not being deleted")
			}
			return nil
		},
	}
}

func (n *newcomers) createdAgain() mistake {
	const name = "again-1"
	again := []string{"agent", "create", name, "--mode", "managed", "--spiffe-id", idOf(name), "--access", "read"}
	return mistake{
		person: "`agentctl agent create` once more, with other settings",
		does: func(s *scene) {
			n.register(s, name, "managed", idOf(name))
			s.answer(n.agentctl(s, again...))
		},
		on: "`agentctl`", told: printed,
		says:  `it exists with other settings: …; change that with "agentctl agent set again-1 …"`,
		cure:  func(s *scene) { s.run(n.w.h, n.w.hub, beginners, s.find(`change that with "([^"]+)"`)) },
		cured: func(s *scene) error { _, err := n.agentctl(s, again...); return err },
	}
}

func (n *newcomers) misspeltKey() mistake {
	file := func(s *scene, key string) string {
		path := filepath.Join(s.TempDir(), "agent.yaml")
		s.must(os.WriteFile(path, []byte("name: edge-1\nmode: managed\n"+key+": {enabled: true}\n"), 0o600))
		return path
	}
	return mistake{
		person: "a misspelt key in a settings file",
		does:   func(s *scene) { s.complains(n.program, "--config", file(s, "acess")) },
		on:     "the agent, as it starts", told: printed,
		says: "acess: unknown key, did you mean access? (…agent.yaml, line 3)",
		cure: func(s *scene) { s.complains(n.program, "--config", file(s, s.find(`did you mean (\S+)\?`))) }, // of what else is missing
		cured: func(s *scene) error {
			if strings.Contains(s.said, "unknown key") {
				return errors.New(s.said)
			}
			return nil
		},
	}
}

func (n *newcomers) misspeltCommand() mistake {
	return mistake{
		person: "a command of agentctl that there is not",
		does:   func(s *scene) { s.answer(n.agentctl(s, "agent", "lists")) },
		on:     "`agentctl`", told: printed,
		says:  `unknown command "agentctl agent lists"; did you mean "agentctl agent list"?`,
		cure:  func(s *scene) { s.run(n.w.h, n.w.hub, beginners, s.find(`did you mean "([^"]+)"`)) },
		cured: func(*scene) error { return nil }, // it ran
	}
}

func (n *newcomers) wrongNamespace() mistake {
	return mistake{
		person: "`agentctl agent list` in a namespace that there is not",
		does: func(s *scene) {
			s.answer(n.w.h.Agentctl(s.Context(), n.w.hub, "agent", "list", "--namespace", "argo-cd"))
		},
		on: "`agentctl`", told: printed,
		says: "namespace argo-cd does not exist on the hub: name the one of Argo CD with --namespace, or list all with --all-namespaces",
		cure: func(s *scene) {
			out, err := n.w.h.Agentctl(s.Context(), n.w.hub, "agent", "list", "--namespace", "argo-cd", s.find(`list all with (--\S+)`))
			s.must(err)
			s.said = out
		},
		cured: func(s *scene) error {
			if !strings.Contains(s.said, beginners) {
				return errors.New(s.said)
			}
			return nil
		},
	}
}

func (n *newcomers) setMapping() mistake {
	const name, namespace = "moves-1", "moves-team"
	var file string
	set := func(s *scene) (string, error) {
		return n.agentctl(s, "hub", "set-mapping", "destination", "--principal-config", file, "--yes")
	}
	write := func(s *scene, more string) {
		s.must(os.WriteFile(file, []byte("namespace: "+beginners+"\n"+more), 0o600))
	}
	return mistake{
		person: "`agentctl hub set-mapping` that would take an Application from its agent",
		does: func(s *scene) {
			file = filepath.Join(s.TempDir(), "principal.yaml")
			write(s, "")
			s.must(n.w.hub.EnsureNamespace(s.Context(), namespace))
			n.register(s, name, "managed", idOf(name))
			patch(s.T, n.registry(), name, map[string]any{"spec": map[string]any{"mapping": map[string]any{"namespaces": []any{map[string]any{"hub": namespace}}}}})
			apps := n.w.hub.Resource(harness.Applications, namespace)
			create(s.T, apps, aimedAt(name, "web"))
			s.discard(apps, "web")
			s.answer(set(s))
		},
		on: "`agentctl`, which changes nothing", told: printed,
		says: "no agent takes it: its destination is agent moves-1, and namespace moves-team is none where Applications of agents may be; create it in namespace beginners, or add moves-team to mapping.namespaces of the principal…1 Application would be lost to its agent, for the reasons in the table",
		cure: func(s *scene) {
			write(s, strings.Replace(s.find(`to (mapping\.namespaces) of the principal`), ".", ": {", 1)+": ["+s.find(`or add (\S+) to`)+"]}\n")
			out, err := set(s)
			if err != nil {
				s.Fatalf("%v\n%s", err, out)
			}
		},
		cured: func(s *scene) error {
			return field(s.Context(), n.w.hub.Resource(configMaps, beginners), "argomesh-hub", "destination", "data", "mapping")
		},
	}
}
