//go:build linux

package sync

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// A suspended agent loses its connection within a second and learns why, and
// comes back by itself once it is admitted again.
func TestSuspendedAgent(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	agent := w.Agents[env.Managed]
	registry := w.Hub.Resource(schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}, harness.ArgoCDNamespace)
	env.Eventually(t, "the agent is connected", func() error { return env.ActiveAgent(ctx, agent, true) })
	from := env.FileSize(t, agent.Process)
	suspend := func(yes bool) {
		t.Helper()
		env.Patch(t, registry, env.Managed, map[string]any{"spec": map[string]any{"suspended": yes}})
	}
	t.Cleanup(func() {
		if t.Failed() {
			suspend(false) // others use the agent
		}
	})
	suspend(true)
	suspended := time.Now()
	env.Eventually(t, "the agent has no connection", func() error {
		up, err := env.Gauge(ctx, agent.AdminAddress, "argomesh_stream_up")
		if err == nil && up != "0" {
			err = fmt.Errorf("argomesh_stream_up is %s", up)
		}
		return err
	})
	t.Logf("the connection ended %s after the agent was suspended", time.Since(suspended)) // the target is a second
	env.Create(t, w.OnHub(env.Managed), w.Idle("while-suspended", env.Managed, env.Managed))
	env.Eventually(t, "the agent says why, and that it is still refused", func() error {
		told, refused := false, false
		for _, line := range env.LogLines(t, agent.Process, from) {
			message, reason := fmt.Sprint(line["message"]), fmt.Sprint(line["error"])
			told = told || strings.Contains(message, "ended by revocation") && strings.Contains(reason, "no longer admits") && line["level"] == "error"
			refused = refused || strings.Contains(message, "the hub has suspended this agent")
		}
		if !told || !refused {
			return fmt.Errorf("told %t, refused %t", told, refused)
		}
		return nil
	})
	if err := env.Gone(ctx, w.OnSpoke(env.Managed), "while-suspended"); err != nil {
		t.Error(err)
	}
	suspend(false)
	env.Eventually(t, "what was created meanwhile is on the spoke", func() error {
		return env.FieldIs(ctx, w.OnSpoke(env.Managed), "while-suspended", harness.Branch, "spec", "source", "targetRevision")
	})
}
