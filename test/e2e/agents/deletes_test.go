//go:build linux

package agents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

func testAgentctlDelete(t *testing.T, r *registration, c agentctl) {
	r, c.t = r.in(t), t
	const waits = "the spoke to remove 1 Application"
	untilOrphan := func(a v1alpha1.Agent) string {
		if a.Spec.DeletionPolicy == v1alpha1.DeletionCascade {
			return waits
		}
		return ""
	}
	registered := func(name string, change func(*v1alpha1.Agent)) *departure {
		t.Helper()
		r.create(name, change)
		r.inForce(name)
		return r.departures.script(name)
	}
	cascade := func(a *v1alpha1.Agent) { a.Spec.DeletionPolicy = v1alpha1.DeletionCascade }
	called := func(name string, d *departure, want ...string) {
		t.Helper()
		if got := slices.Compact(d.seen()); !slices.Equal(got, want) {
			t.Errorf("Depart of %s was called for %q, want %q", name, got, want)
		}
	}
	deleted := func(name string) string { return "agent.argomesh.io/" + name + " deleted\n" }

	// A cascade that takes a while says what it waits for.
	d := registered("end-1", nil)
	var said spoken
	d.waitsFor(func(v1alpha1.Agent) string {
		if strings.Contains(said.String(), waits) {
			return ""
		}
		return waits
	})
	c.run(agentctlCall{
		args: strings.Fields("agent delete end-1 --cascade --yes"), wantOut: deleted("end-1"), says: &said,
		wantNote: "end-1: the Agent is being deleted and waits for " + waits + "; the agent is not connected\n",
	})
	r.gone("end-1") // it waited
	called("end-1", d, "managed cascade")

	// An autonomous agent has none, and stays as it was.
	d = registered("end-2", func(a *v1alpha1.Agent) { a.Spec.Mode = v1alpha1.ModeAutonomous })
	c.run(agentctlCall{args: strings.Fields("agent delete end-2 --cascade"), wantErr: `delete agent "end-2": --cascade is for mode managed`})
	if a := r.agent("end-2"); a.DeletionTimestamp != nil || a.Spec.DeletionPolicy != v1alpha1.DeletionOrphan {
		t.Errorf("after a refused cascade the Agent is %+v", a)
	}
	c.run(agentctlCall{args: strings.Fields("agent delete end-2"), wantOut: deleted("end-2"), wantNote: "its Applications are its own"})
	called("end-2", d, "autonomous orphan")

	// Without a flag it is the Agent's own policy, and --force calls that off.
	d = registered("end-3", cascade)
	d.waitsFor(untilOrphan)
	c.run(agentctlCall{
		args: strings.Fields("agent delete end-3"), wantErr: `delete agent "end-3": there is no terminal to ask on: say --yes`,
		talks: true,
	})
	if a := r.agent("end-3"); a.DeletionTimestamp != nil {
		t.Error("what nobody agreed to is done")
	}
	c.run(agentctlCall{
		args:    strings.Fields("agent delete end-3 --timeout 1s --yes"),
		wantErr: `agent "end-3" is being deleted, but not gone after 1s: `, talks: true,
		wantOut: deleted("end-3"),
	})
	env.Eventually(r.t, "the Agent to say what it waits for", func() error {
		if c := meta.FindStatusCondition(r.agent("end-3").Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, waits) {
			return errors.New(c.Message)
		}
		return nil
	})
	c.run(agentctlCall{
		args:    strings.Fields("agent delete end-3 --timeout 10s"), // in which it reads that
		wantErr: `agent "end-3" is being deleted, but not gone after 10s: the Agent is being deleted and waits for ` + waits, talks: true,
		wantOut: deleted("end-3"),
	})
	c.run(agentctlCall{args: strings.Fields("agent delete end-3 --force"), wantOut: deleted("end-3"), wantNote: "Forced: the hub did not wait for the spoke."})
	called("end-3", d, "managed cascade", "managed orphan")

	d = registered("end-4", cascade)
	c.run(agentctlCall{args: strings.Fields("agent delete end-4 --orphan"), wantOut: deleted("end-4"), wantNote: "argomesh.io/source-"})
	called("end-4", d, "managed orphan")

	// A person is asked before a cascade, and only then.
	d = registered("end-5", nil)
	c.run(agentctlCall{args: strings.Fields("agent delete end-5 --cascade"), stdin: terminal(t, "n"), wantNote: "Cancelled, agent end-5 stays.\n"})
	if a := r.agent("end-5"); a.DeletionTimestamp != nil || a.Spec.DeletionPolicy != v1alpha1.DeletionOrphan {
		t.Errorf("after a cancelled cascade the Agent is %+v", a)
	}
	c.run(agentctlCall{
		args: strings.Fields("agent delete end-5 --cascade"), stdin: terminal(t, "y"), wantOut: deleted("end-5"),
		wantNote: `Delete agent "end-5", and on its spoke all its Applications with their workloads? (y/N): `,
	})
	called("end-5", d, "managed cascade")
	d = registered("end-6", cascade)
	c.run(agentctlCall{args: strings.Fields("agent delete end-6 --yes"), stdin: terminal(t, "n"), wantOut: deleted("end-6"), wantNote: anything})
	called("end-6", d, "managed cascade")
	registered("end-7", nil)
	c.run(agentctlCall{args: strings.Fields("agent delete end-7"), stdin: terminal(t, "n"), wantOut: deleted("end-7"), wantNote: anything})
}

func testAgentctlAccept(t *testing.T, r *registration, c agentctl) {
	r, c.t = r.in(t), t
	r.create("held-1", nil)
	session := r.connect("held-1", func(s *controller.Session) { s.History.Begin = true })
	accept := strings.Fields("agent accept-deletions held-1")
	c.run(agentctlCall{args: accept, wantNote: "No deletions are held for agent held-1.\n"})
	hold := func(id string) {
		t.Helper()
		session.Held = heldOf(id)
		r.sessions.set(t, "held-1", session)
		r.status("held-1", "hold "+id, func(s v1alpha1.AgentStatus) bool { return s.DeletionsHeld != nil && s.DeletionsHeld.ID == id })
	}
	hold("hold-1")
	const shown = "Agent held-1 holds back 2 deletions since "
	out, _ := c.run(agentctlCall{args: strings.Fields("agent get held-1 -o wide"), wantOut: anything})
	history := r.agent("held-1").Status.History
	for _, part := range []string{
		shown, "(HistoryBroken): the hub was restored\nID hold-1\n  Application argocd/a\n  Application argocd/b\n",
		"Let them happen with: agentctl agent accept-deletions held-1\n",
		"history " + history.ID + " with Kubernetes cluster cluster-1, tokens " + history.Tokens[0] + ".\n",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("agent get -o wide prints\n%swant something with\n%s", out, part)
		}
	}

	c.run(agentctlCall{args: append(accept, "--id", "hold-0", "--yes"), wantErr: `held is hold-1, not hold-0: look at it with "agentctl agent get held-1"`})
	c.run(agentctlCall{args: accept, wantErr: "there is no terminal to ask on: say --yes", talks: true})
	c.run(agentctlCall{args: accept, stdin: terminal(t, "n"), wantNote: "Let 2 deletions happen? (y/N): Cancelled, they stay held.\n"})
	if a := r.agent("held-1"); a.Annotations[v1alpha1.AcceptDeletionsAnnotation] != "" {
		t.Errorf("annotations are %v before anything was accepted", a.Annotations)
	}

	c.run(agentctlCall{
		args:    append(accept, "--yes", "--timeout", "1s"),
		wantErr: `deletions of agent "held-1" are accepted, but still held after 1s: check that the principal`, talks: true,
	})
	if got := r.agent("held-1").Annotations[v1alpha1.AcceptDeletionsAnnotation]; got != "hold-1" {
		t.Errorf("the annotation is %q, want hold-1", got)
	}

	// The principal answers the annotation: with nothing held, with something else.
	answer := func(id string, then *v1alpha1.DeletionsHeld) (done func()) {
		t.Helper()
		next := session
		next.Held = then
		result := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
		go func() {
			result <- harness.Eventually(ctx, "the annotation "+id, func() error {
				a, err := r.getAgent("held-1")
				if err == nil && a.Annotations[v1alpha1.AcceptDeletionsAnnotation] != id {
					err = fmt.Errorf("annotations are %v", a.Annotations)
				}
				if err == nil {
					r.sessions.set(t, "held-1", next)
				}
				return err
			})
		}()
		return func() {
			t.Helper()
			defer cancel()
			if err := <-result; err != nil {
				t.Error(err)
			}
		}
	}
	hold("hold-2")
	answered := answer("hold-2", nil)
	c.run(agentctlCall{args: append(accept, "--id", "hold-2", "-y"), wantOut: "agent.argomesh.io/held-1 deletions accepted\n", wantNote: shown})
	answered()

	hold("hold-3")
	answered = answer("hold-3", heldOf("hold-4"))
	c.run(agentctlCall{
		args: accept, stdin: terminal(t, "y"), talks: true,
		wantErr: "what is held changed meanwhile: now it is hold-4, under which 2 deletions are held",
	})
	answered()

	// While the agent is away they are accepted, and wait for it.
	r.sessions.remove(t, "held-1")
	r.condition("held-1", v1alpha1.ConditionConnected, metav1.ConditionFalse, "")
	c.run(agentctlCall{
		args: append(accept, "--yes", "--timeout", "1s"), talks: true,
		wantErr: "still held after 1s: the agent is not connected; they happen when it is back",
	})
	c.run(agentctlCall{args: append(accept, "--yes", "--wait=false", "-o", "name"), wantOut: "agent.argomesh.io/held-1\n", wantNote: shown})
}

// terminal returns a terminal at which a person has typed a line.
func terminal(t *testing.T, line string) *os.File {
	t.Helper()
	person, program := harnesstest.Terminal(t)
	if _, err := person.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
	return program
}
