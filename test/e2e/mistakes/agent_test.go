//go:build linux

package mistakes

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

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/harness"
)

// newcomers is a hub that maps by namespace, whose Agents people register and run wrongly.
type newcomers struct {
	w         *env.Bare
	principal *harness.Principal
	program   string // agent
}

// beginners is the namespace of that hub's Argo CD.
const beginners = "beginners"

// TestMistakesOfAgents are those that people make when they register agents and run them.
func TestMistakesOfAgents(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	if err := w.Hub.EnsureNamespace(t.Context(), beginners); err != nil {
		t.Fatal(err)
	}
	n := &newcomers{w: w, principal: w.MappedPrincipal(t, beginners, harness.Settings{})}
	var err error
	if n.program, err = w.Harness.Binary("agent"); err != nil {
		t.Fatal(err)
	}
	for _, list := range agentMistakes(n) {
		t.Run(list[0].Person, func(t *testing.T) {
			t.Parallel()
			list.Happen(t)
		})
	}
}

func agentMistakes(n *newcomers) []mistake.List {
	return []mistake.List{
		{n.neverRan()}, {n.wrongMode()}, {n.wrongName()}, {n.wrongID()}, {n.wrongAddress()}, {n.wrongPrincipal()}, {n.oneIDTwice()},
		{n.cascadeInScript()}, {n.createdAgain()}, {n.misspeltKey()}, {n.misspeltCommand()}, {n.wrongNamespace()}, {n.setMapping()},
	}
}

func (n *newcomers) registry() dynamic.ResourceInterface {
	return n.w.Hub.Resource(env.Agents, beginners)
}

// agentctl runs agentctl on the hub.
func (n *newcomers) agentctl(s *mistake.Scene, args ...string) (string, error) {
	return n.w.Harness.Agentctl(s.Context(), n.w.Hub, append([]string{"--namespace", beginners}, args...)...)
}

// register registers an agent.
func (n *newcomers) register(s *mistake.Scene, name, mode, id string, more ...string) {
	_, err := n.agentctl(s, append([]string{"agent", "create", name, "--mode", mode, "--spiffe-id", id, "--wait"}, more...)...)
	s.Must(err)
	discard(s, n.registry(), name)
}

// start runs an agent, which ends with the test.
func (n *newcomers) start(s *mistake.Scene, process, name, mode, id string) *harness.Agent {
	spire, err := n.w.Identify(s.Context(), id)
	s.Must(err)
	s.Must(n.w.Spoke.EnsureNamespace(s.Context(), process))
	a, err := n.w.Harness.StartAgent(s.Context(), harness.AgentConfig{
		Name: name, Mode: mode, Process: process, ControlPlane: n.w.Spoke, WorkloadAPI: spire,
		PrincipalAddress: n.principal.Address, PrincipalIDs: []string{env.PrincipalID}, Settings: harness.Settings{"namespace": process},
	})
	s.Must(err)
	s.Cleanup(func() {
		if err := a.Stop(context.WithoutCancel(s.Context())); err != nil {
			s.Error(err)
		}
	})
	return a
}

// connected is nil when an agent is.
func (n *newcomers) connected(name string) func(*mistake.Scene) error {
	return func(s *mistake.Scene) error {
		return env.FieldIs(s.Context(), n.registry(), name, true, "status", "connected")
	}
}

// refusedSince is told for condition Connected of an Agent that refuses, which says itself
// since when: it was False before.
func (n *newcomers) refusedSince(name string) func(*mistake.Scene) (string, time.Time, error) {
	return func(s *mistake.Scene) (string, time.Time, error) {
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

func (n *newcomers) neverRan() mistake.Mistake {
	const name = "idle-1"
	return mistake.Mistake{
		Person: "an Agent whose agent does not run",
		Does:   func(s *mistake.Scene) { n.register(s, name, "managed", env.SPIFFEID(name)) },
		On:     "`agentctl agent describe`, and condition `Connected` of the Agent", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			shown, err := n.agentctl(s, "agent", "describe", name)
			if err != nil || !strings.Contains(shown, "Never connected") {
				return "", time.Time{}, errors.Join(err, fmt.Errorf("it shows %s", shown))
			}
			return inCondition(s, n.registry(), name, "Connected")
		},
		Says: "no agent has connected yet: run one with name idle-1, mode managed and SPIFFE ID spiffe://e2e.argomesh.test/argomesh/agent/idle-1; one that has another ID is shown by agentctl agent list --unknown",
		Cure: func(s *mistake.Scene) {
			n.start(s, name, s.Find(`with name (\S+),`), s.Find(`mode (\S+) and`), s.Find(`SPIFFE ID (\S+);`))
		},
		Cured: n.connected(name),
	}
}

// otherwise is a mistake whose agent is registered as managed with a SPIFFE ID, and runs with
// one of its own, under another name or in another mode; a is that agent, once it runs. Unless
// m says more, condition Connected tells it, and the cure is to set what that names in the
// agent's configuration. agentctl check finds it by a word.
func (n *newcomers) otherwise(a *harness.Agent, m mistake.Mistake, name, registered, runsAs, mode, word string) mistake.Mistake {
	m.Does = func(s *mistake.Scene) {
		n.register(s, name, "managed", registered)
		s.Act = time.Now() // the mistake is to run it so
		*a = *n.start(s, name, runsAs, mode, env.SPIFFEID(name))
	}
	if m.Told == nil {
		m.On, m.Within, m.Told = "condition `Connected` of the Agent", told10, n.refusedSince(name)
	}
	if m.Cure == nil {
		m.Cure = func(s *mistake.Scene) {
			reconfigure(s, a.Process, a.ConfigFile, s.Find(`set (\S+) to \S+ in the agent's configuration`), s.Find(`set \S+ to "?([^" ]+)"? in`))
		}
	}
	m.Cured = n.connected(name)
	return checked(m, func() *env.Bare { return n.w }, beginners, name, word)
}

func (n *newcomers) wrongMode() mistake.Mistake {
	const name = "mode-1"
	return n.otherwise(new(harness.Agent), mistake.Mistake{
		Person: "an agent that runs in another mode than the Agent has",
		Says:   "refused since …: the agent is configured as autonomous, and registered as managed: set mode to managed in the agent's configuration, or delete this Agent and create it again as autonomous",
	}, name, env.SPIFFEID(name), name, "autonomous", "RefusedMode")
}

func (n *newcomers) wrongName() mistake.Mistake {
	const name = "name-1"
	return n.otherwise(new(harness.Agent), mistake.Mistake{
		Person: "an agent that runs under another name than the Agent has",
		Says:   `refused since …: the agent that has this SPIFFE ID is configured with the name "noname-1": set name to "name-1" in the agent's configuration, or take the SPIFFE ID from this Agent to Agent noname-1`,
	}, name, env.SPIFFEID(name), "noname-1", "managed", "RefusedName")
}

func (n *newcomers) wrongID() mistake.Mistake {
	const name = "unknown-1"
	return n.otherwise(new(harness.Agent), mistake.Mistake{
		Person: "an agent with a SPIFFE ID that no Agent has",
		Says: "refused since …: no Agent has SPIFFE ID spiffe://e2e.argomesh.test/argomesh/agent/unknown-1, and this one has spiffe://e2e.argomesh.test/argomesh/agent/other-1: " +
			"register the pods of the agent with that; or, if the other is this agent's, agentctl agent set unknown-1 --spiffe-id spiffe://e2e.argomesh.test/argomesh/agent/unknown-1",
		Cure: func(s *mistake.Scene) {
			run(s, n.w.Harness, n.w.Hub, beginners, s.Find(`agentctl agent set \S+ --spiffe-id \S+`))
		},
	}, name, env.SPIFFEID("other-1"), name, "managed", "RefusedSPIFFEID")
}

// doctor runs agentctl identity doctor with an identity of its own.
func (n *newcomers) doctor(s *mistake.Scene, name, address, principal string) (string, error) {
	spire, err := n.w.Identify(s.Context(), env.SPIFFEID(name))
	s.Must(err)
	return n.agentctl(s, "identity", "doctor", "--socket", spire.Socket, "--principal", address, "--principal-id", principal, "--agent", name, "--output", "wide")
}

func (n *newcomers) wrongAddress() mistake.Mistake {
	const name = "address-1"
	return mistake.Mistake{
		Person: "an address at which no principal listens",
		Does: func(s *mistake.Scene) {
			n.register(s, name, "managed", env.SPIFFEID(name))
			nobody, err := n.w.Harness.Address()
			s.Must(err)
			s.Answer(n.doctor(s, name, nobody, env.PrincipalID))
		},
		On: "`agentctl identity doctor` on the spoke", Told: mistake.Printed,
		Says: "problem: principal …cure: check the address, that the principal runs, and that our Workload API has the bundle of its trust domain",
		Cure: func(s *mistake.Scene) {
			s.Find("check the address")
			out, err := n.doctor(s, name, n.principal.Address, env.PrincipalID)
			s.Must(err)
			s.Said = out
		},
		Cured: func(s *mistake.Scene) error { return knows(s.Said, name) },
	}
}

// knows is nil when doctor says that the principal knows an agent.
func knows(out, name string) error {
	if !strings.Contains(out, "knows our SPIFFE ID for agent "+name) {
		return errors.New(out)
	}
	return nil
}

func (n *newcomers) wrongPrincipal() mistake.Mistake {
	const name = "impostor-1"
	return mistake.Mistake{
		Person: "another SPIFFE ID than the principal has",
		Does: func(s *mistake.Scene) {
			n.register(s, name, "managed", env.SPIFFEID(name))
			s.Answer(n.doctor(s, name, n.principal.Address, "spiffe://"+env.TrustDomain+"/argomesh/principle"))
		},
		On: "`agentctl identity doctor` on the spoke", Told: mistake.Printed,
		Says: "problem: principal … is spiffe://e2e.argomesh.test/argomesh/principal, which is not accepted; cure: correct principal.spiffe_ids of the agent, or --principal-id, if that is the principal",
		Cure: func(s *mistake.Scene) {
			out, err := n.doctor(s, name, n.principal.Address, s.Find(` is (\S+), which is not accepted`))
			s.Must(err)
			s.Said = out
		},
		Cured: func(s *mistake.Scene) error { return knows(s.Said, name) },
	}
}

func (n *newcomers) oneIDTwice() mistake.Mistake {
	const older, name = "twice-1", "twice-2"
	return mistake.Mistake{
		Person: "two Agents with one SPIFFE ID",
		Does: func(s *mistake.Scene) {
			n.register(s, older, "managed", env.SPIFFEID(older))
			s.Act = time.Now()
			_, err := n.agentctl(s, "agent", "create", name, "--mode", "managed", "--spiffe-id", env.SPIFFEID(older))
			s.Must(err)
			discard(s, n.registry(), name)
		},
		On: "condition `Conflict` of the newer Agent", Within: told10,
		Told: func(s *mistake.Scene) (string, time.Time, error) {
			return inCondition(s, n.registry(), name, "Conflict")
		},
		Says: "SPIFFE ID spiffe://e2e.argomesh.test/argomesh/agent/twice-1 belongs to the older Agent twice-1: give this Agent another, by agentctl agent set twice-2 --spiffe-id ID, or delete the older one",
		Cure: func(s *mistake.Scene) {
			run(s, n.w.Harness, n.w.Hub, beginners, s.Find(`agentctl agent set \S+ --spiffe-id `)+env.SPIFFEID(name))
		},
		Cured: func(s *mistake.Scene) error {
			o, err := n.registry().Get(s.Context(), name, metav1.GetOptions{})
			if err == nil && env.ConditionIn(o, "Conflict")["status"] == "True" {
				err = errors.New("the conflict is still there")
			}
			return err
		},
	}
}

func (n *newcomers) cascadeInScript() mistake.Mistake {
	const name = "cascade-1"
	command := []string{"agent", "delete", name, "--cascade", "--wait=false"}
	return mistake.Mistake{
		Person: "`agentctl agent delete --cascade` in a script",
		Does: func(s *mistake.Scene) {
			n.register(s, name, "managed", env.SPIFFEID(name))
			s.Answer(n.agentctl(s, command...))
			if err := env.Exists(s.Context(), n.registry(), name); err != nil {
				s.Errorf("it is deleted: %v", err)
			}
		},
		On: "`agentctl`", Told: mistake.Printed,
		Says: "there is no terminal to ask on: say --yes",
		Cure: func(s *mistake.Scene) {
			_, err := n.agentctl(s, append(command, s.Find(`say (--\S+)`))...)
			s.Must(err)
		},
		Cured: func(s *mistake.Scene) error {
			o, err := n.registry().Get(s.Context(), name, metav1.GetOptions{})
			if err == nil && o.GetDeletionTimestamp() == nil {
				return errors.New("it is not being deleted")
			}
			return nil
		},
	}
}

func (n *newcomers) createdAgain() mistake.Mistake {
	const name = "again-1"
	again := []string{"agent", "create", name, "--mode", "managed", "--spiffe-id", env.SPIFFEID(name), "--access", "read"}
	return mistake.Mistake{
		Person: "`agentctl agent create` once more, with other settings",
		Does: func(s *mistake.Scene) {
			n.register(s, name, "managed", env.SPIFFEID(name))
			s.Answer(n.agentctl(s, again...))
		},
		On: "`agentctl`", Told: mistake.Printed,
		Says:  `it exists with other settings: …; change that with "agentctl agent set again-1 …"`,
		Cure:  func(s *mistake.Scene) { run(s, n.w.Harness, n.w.Hub, beginners, s.Find(`change that with "([^"]+)"`)) },
		Cured: func(s *mistake.Scene) error { _, err := n.agentctl(s, again...); return err },
	}
}

func (n *newcomers) misspeltKey() mistake.Mistake {
	file := func(s *mistake.Scene, key string) string {
		path := filepath.Join(s.TempDir(), "agent.yaml")
		s.Must(os.WriteFile(path, []byte("name: edge-1\nmode: managed\n"+key+": {enabled: true}\n"), 0o600))
		return path
	}
	return mistake.Mistake{
		Person: "a misspelt key in a settings file",
		Does:   func(s *mistake.Scene) { complains(s, n.program, "--config", file(s, "acess")) },
		On:     "the agent, as it starts", Told: mistake.Printed,
		Says: "acess: unknown key, did you mean access? (…agent.yaml, line 3)",
		Cure: func(s *mistake.Scene) { complains(s, n.program, "--config", file(s, s.Find(`did you mean (\S+)\?`))) }, // of what else is missing
		Cured: func(s *mistake.Scene) error {
			if strings.Contains(s.Said, "unknown key") {
				return errors.New(s.Said)
			}
			return nil
		},
	}
}

func (n *newcomers) misspeltCommand() mistake.Mistake {
	return mistake.Mistake{
		Person: "a command of agentctl that there is not",
		Does:   func(s *mistake.Scene) { s.Answer(n.agentctl(s, "agent", "lists")) },
		On:     "`agentctl`", Told: mistake.Printed,
		Says:  `unknown command "agentctl agent lists"; did you mean "agentctl agent list"?`,
		Cure:  func(s *mistake.Scene) { run(s, n.w.Harness, n.w.Hub, beginners, s.Find(`did you mean "([^"]+)"`)) },
		Cured: func(*mistake.Scene) error { return nil }, // it ran
	}
}

func (n *newcomers) wrongNamespace() mistake.Mistake {
	return mistake.Mistake{
		Person: "`agentctl agent list` in a namespace that there is not",
		Does: func(s *mistake.Scene) {
			s.Answer(n.w.Harness.Agentctl(s.Context(), n.w.Hub, "agent", "list", "--namespace", "argo-cd"))
		},
		On: "`agentctl`", Told: mistake.Printed,
		Says: "namespace argo-cd does not exist on the hub: name the one of Argo CD with --namespace, or list all with --all-namespaces",
		Cure: func(s *mistake.Scene) {
			out, err := n.w.Harness.Agentctl(s.Context(), n.w.Hub, "agent", "list", "--namespace", "argo-cd", s.Find(`list all with (--\S+)`))
			s.Must(err)
			s.Said = out
		},
		Cured: func(s *mistake.Scene) error {
			if !strings.Contains(s.Said, beginners) {
				return errors.New(s.Said)
			}
			return nil
		},
	}
}

func (n *newcomers) setMapping() mistake.Mistake {
	const name, namespace = "moves-1", "moves-team"
	var file string
	set := func(s *mistake.Scene) (string, error) {
		return n.agentctl(s, "hub", "set-mapping", "destination", "--principal-config", file, "--yes")
	}
	write := func(s *mistake.Scene, more string) {
		s.Must(os.WriteFile(file, []byte("namespace: "+beginners+"\n"+more), 0o600))
	}
	return mistake.Mistake{
		Person: "`agentctl hub set-mapping` that would take an Application from its agent",
		Does: func(s *mistake.Scene) {
			file = filepath.Join(s.TempDir(), "principal.yaml")
			write(s, "")
			s.Must(n.w.Hub.EnsureNamespace(s.Context(), namespace))
			n.register(s, name, "managed", env.SPIFFEID(name))
			env.Patch(s.T, n.registry(), name, map[string]any{"spec": map[string]any{"mapping": map[string]any{"namespaces": []any{map[string]any{"hub": namespace}}}}})
			apps := n.w.Hub.Resource(harness.Applications, namespace)
			env.Create(s.T, apps, aimedAt(name, "web"))
			discard(s, apps, "web")
			s.Answer(set(s))
		},
		On: "`agentctl`, which changes nothing", Told: mistake.Printed,
		Says: "no agent takes it: its destination is agent moves-1, and namespace moves-team is none where Applications of agents may be; create it in namespace beginners, or add moves-team to mapping.namespaces of the principal…1 Application would be lost to its agent, for the reasons in the table",
		Cure: func(s *mistake.Scene) {
			write(s, strings.Replace(s.Find(`to (mapping\.namespaces) of the principal`), ".", ": {", 1)+": ["+s.Find(`or add (\S+) to`)+"]}\n")
			out, err := set(s)
			if err != nil {
				s.Fatalf("%v\n%s", err, out)
			}
		},
		Cured: func(s *mistake.Scene) error {
			return env.FieldIs(s.Context(), n.w.Hub.Resource(env.ConfigMaps, beginners), "argomesh-hub", "destination", "data", "mapping")
		},
	}
}
