//go:build linux

package sync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// Two agents of one spoke: one works and the other stands by, whatever becomes of
// the first.
func TestOneAgentWorksAtATime(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	first := w.Agents[env.Managed]
	env.Eventually(t, "the first agent works", func() error { return env.ActiveAgent(ctx, first, true) })
	second, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: env.Managed, Process: "standby", Mode: "managed", ControlPlane: w.Edge1, WorkloadAPI: w.Identities[env.Managed],
		PrincipalAddress: w.Principal.Address, PrincipalIDs: []string{env.PrincipalID},
		Settings: harness.Settings{"log.level": "debug"},
	})
	if err != nil {
		t.Fatal(err) // it is ready though it stands by
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), env.Patience)
		defer cancel()
		if err := second.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	// Their logs are read from here on. What ran before is not this test's.
	read := map[*harness.Process]int64{w.Principal.Process: env.FileSize(t, w.Principal.Process), first.Process: 0, second.Process: 0}
	env.Eventually(t, "the second agent stands by", func() error { return env.ActiveAgent(ctx, second, false) })

	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	env.Create(t, hub, w.Idle("lease", env.Managed, env.Managed))
	reaches := func(revision string) {
		t.Helper()
		env.Patch(t, hub, "lease", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": revision}}})
		env.Eventually(t, revision+" is on the spoke", func() error {
			return env.FieldIs(ctx, spoke, "lease", revision, "spec", "source", "targetRevision")
		})
	}
	reaches("by-the-first")

	// Stopped in order, the first hands over at once.
	ours, before := holder(t, w), env.FileSize(t, first.Process)
	began := time.Now()
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// A spoke that is too slow to take the Lease back is not waited for.
	if now := holder(t, w); now == ours && !slices.ContainsFunc(env.LogLines(t, first.Process, before), func(line map[string]any) bool {
		return strings.HasPrefix(fmt.Sprint(line["message"]), "cannot release the lease")
	}) {
		t.Errorf("%s holds the Lease after it has stopped", now)
	}
	env.Eventually(t, "the second agent works", func() error { return env.ActiveAgent(ctx, second, true) })
	t.Logf("stopped in order: %s without an agent", time.Since(began))
	reaches("by-the-second")
	if err := first.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	// It comes back to a Lease that another has.
	env.Eventually(t, "the first agent stands by", func() error { return env.ActiveAgent(ctx, first, false) })

	// Killed, the second leaves its Lease to expire.
	began = time.Now()
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the first agent works again", func() error { return env.ActiveAgent(ctx, first, true) })
	t.Logf("killed: %s without an agent", time.Since(began))
	reaches("by-the-first-again")

	// Killed and back at once, it need not wait: the Lease is its own, which it renews.
	began = time.Now()
	if err := env.KillAndStart(ctx, first.Process); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the first agent works after a restart", func() error { return env.ActiveAgent(ctx, first, true) })
	t.Logf("killed and started: %s without an agent", time.Since(began))
	reaches("by-the-first-after-all")
	if holder(t, w) == "" {
		t.Error("nobody holds the Lease")
	}
	checkTurns(t, w, read, first, second)
	if err := hub.Delete(ctx, "lease", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// holder returns who holds the Lease of the agents, empty when no one does.
func holder(t *testing.T, w *env.Argo) string {
	t.Helper()
	lease := env.Get(t, w.Edge1.Resource(env.Leases, harness.ArgoCDNamespace), "argomesh-agent")
	name, _, err := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// checkTurns holds, by what all three logged, that the principal never had
// connections of both agents at a time.
func checkTurns(t *testing.T, w *env.Argo, from map[*harness.Process]int64, agents ...*harness.Agent) {
	t.Helper()
	owner := map[string]string{} // process by connection
	for _, a := range agents {
		for _, line := range env.LogLines(t, a.Process, from[a.Process]) {
			if line["message"] == "connected to the principal" {
				owner[fmt.Sprint(line["connection"])] = a.Name()
			}
		}
	}
	open := map[string]string{} // process by connection
	turns, last := 0, ""
	for _, line := range env.LogLines(t, w.Principal.Process, from[w.Principal.Process]) {
		connection := fmt.Sprint(line["connection"])
		process, known := owner[connection]
		switch {
		case line["agent"] != env.Managed || !known:
		case line["message"] == "agent disconnected":
			delete(open, connection)
		case line["message"] == "agent connected":
			for other, by := range open {
				if by != process {
					t.Errorf("connection %s of %s began before %s of %s had ended", connection, process, other, by)
				}
			}
			open[connection] = process
			if process != last {
				turns, last = turns+1, process
			}
		}
	}
	if turns < 2 {
		t.Errorf("the principal saw %d turns, want the second agent and the first again: the check shows nothing", turns)
	}
}
