//go:build linux

package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestHistoryClockAhead lets everything that a spoke says of time be ten years ahead,
// then ten years behind. What orders states by their time stamps shows the first for
// ten years; what asks for the age of a thing finds no one alive.
func TestHistoryClockAhead(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "clock", "managed")
	env.Create(t, r.Hub, r.Application("app"))
	env.Eventually(t, "the copy is there", func() error { return env.FieldIs(ctx, r.Spoke, "app", "1", "spec", "source", "targetRevision") })
	for _, years := range []int{10, -10, 0} {
		at := time.Now().AddDate(years, 0, 0).UTC().Format(time.RFC3339)
		phase := fmt.Sprint("Succeeded ", years)
		env.Patch(t, r.Spoke, "app", map[string]any{"status": map[string]any{
			"reconciledAt": at, "observedAt": at,
			"conditions": []any{map[string]any{"type": "SyncError", "message": at, "lastTransitionTime": at}},
			"health":     map[string]any{"status": "Healthy", "lastTransitionTime": at},
			"operationState": map[string]any{
				"operation": map[string]any{"sync": map[string]any{}}, "phase": phase, "startedAt": at, "finishedAt": at,
			},
			"history": []any{map[string]any{"id": 0, "revision": "1", "deployedAt": at, "deployStartedAt": at}},
		}})
		want := fmt.Sprint(env.Get(t, r.Spoke, "app").Object["status"])
		env.Eventually(t, fmt.Sprintf("the hub shows the status of %d years ahead", years), func() error {
			return env.FieldIs(ctx, r.Hub, "app", want, "status")
		})
		// And the hub's word still reaches the spoke.
		env.Patch(t, r.Hub, "app", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": phase}}})
		env.Eventually(t, "a spec reaches the spoke", func() error { return env.FieldIs(ctx, r.Spoke, "app", phase, "spec", "source", "targetRevision") })
	}
	// What the hub says of the agent is by the hub's clock.
	a := env.Get(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), r.Name)
	seen, _, _ := unstructured.NestedString(a.Object, "status", "observedAt")
	if at, err := time.Parse(time.RFC3339, seen); err != nil || time.Since(at).Abs() > time.Hour {
		t.Errorf("the hub has seen the agent at %q", seen)
	}
}

// TestHistoryLongNames has an agent, a namespace and Applications with names as long
// as Kubernetes lets them be. A name that becomes part of another (a label, a prefix,
// an event's id) no longer fits, and one object that cannot be named must not end the
// link for all.
func TestHistoryLongNames(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	label := func(char string) string { return strings.Repeat(char, 63) }
	managed, autonomous := w.Connect(t, label("m"), "managed"), w.Connect(t, label("a"), "autonomous")
	connects := map[*env.BareAgent]float64{managed: attemptsOf(t, managed), autonomous: attemptsOf(t, autonomous)}
	// An RFC 1123 subdomain, once of short labels and once of a single one, which
	// Kubernetes takes too.
	names := []string{strings.Repeat("n.", 126) + "n", strings.Repeat("n", 253)}
	for r, sides := range map[*env.BareAgent][2]string{managed: {"hub", "spoke"}, autonomous: {"spoke", "hub"}} {
		source, copies := r.Hub, r.Spoke
		if r == autonomous {
			source, copies = r.Spoke, r.Hub
		}
		for _, name := range names {
			env.Create(t, source, r.Application(name))
		}
		from, to := env.Record(t, source), env.Record(t, copies)
		env.Eventually(t, r.Mode+": from the "+sides[0]+" to the "+sides[1], func() error { return r.Agree(from, to) })
		for _, name := range names {
			env.Patch(t, r.Spoke, name, map[string]any{"status": map[string]any{"health": map[string]any{"status": "Healthy"}}})
			env.Eventually(t, "the hub shows its status", func() error { return env.FieldIs(ctx, r.Hub, name, "Healthy", "status", "health", "status") })
			if err := source.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "its copy goes", func() error { return env.Gone(ctx, copies, name) })
		}
	}
	// With the agent's name before it, a project's may be too long for the hub.
	fits, tooLong := strings.Repeat("p", 253-64), strings.Repeat("p", 254-64)
	env.Create(t, autonomous.Projects(), env.ProjectNamed(tooLong))
	env.Create(t, autonomous.Projects(), env.ProjectNamed(fits))
	env.Eventually(t, "a project whose name just fits is on the hub", func() error {
		_, err := w.HubProjects().Get(ctx, autonomous.Name+"-"+fits, metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "one whose name does not is parked, with the reason", func() error { return autonomous.Parked(ctx, tooLong, "254 characters, and 253 are possible") })
	for r, before := range connects {
		if now := attemptsOf(t, r); now != before {
			t.Errorf("the %s agent connected %v times meanwhile", r.Mode, now-before)
		}
	}
}

// TestHistoryInvalidObjects writes 2,000 Applications on the hub that the spoke's API
// server refuses, among 100 that it takes. What tries again at once, or keeps the
// order of all, never comes to the 100; what keeps each refusal grows.
func TestHistoryInvalidObjects(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	const invalid, valid = 2000, 100
	const unwanted = "this spoke takes no unwanted Application"
	if err := w.Spoke.ApplyYAML(ctx, []byte(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-unwanted-applications}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [argoproj.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [applications]}
  validations:
  - {expression: "!has(object.metadata.labels) || !('unwanted' in object.metadata.labels)", message: `+unwanted+`}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-unwanted-applications}
spec: {policyName: no-unwanted-applications, validationActions: [Deny]}
`)); err != nil {
		t.Fatal(err)
	}
	r := w.Connect(t, "choosy", "managed")
	build := func(i int) *unstructured.Unstructured {
		app := r.Application(fmt.Sprint("app-", i))
		if i%(invalid/valid+1) != 0 {
			app.SetLabels(map[string]string{"unwanted": "yes"})
		}
		return app
	}
	env.Eventually(t, "the policy is in force on the spoke", func() error {
		_, err := r.Spoke.Create(ctx, build(1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the probe was answered by %w", errors.Join(err, errors.New("no refusal")))
	})
	before, connects := memory(t, w, r), attemptsOf(t, r)
	env.CreateAll(t, r.Hub, invalid+valid, build)
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "the valid ones arrive", func() error {
		if n := len(spoke.Objects()); n != valid {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	refused := func() error {
		n := 0
		for name, o := range hub.Objects() {
			if o.GetLabels()["unwanted"] == "" {
				continue
			}
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if !strings.Contains(fmt.Sprint(list), unwanted) {
				return fmt.Errorf("%s says %v", name, list)
			}
			n++
		}
		if n != invalid {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	}
	env.Eventually(t, "each of the others says why it does not", refused)
	env.Eventually(t, "they are counted, and as many named as fit", func() error {
		a, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		count, _, _ := unstructured.NestedInt64(a.Object, "status", "counts", "parked")
		list, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
		if text := fmt.Sprint(list); count != invalid || len(list) != 50 || strings.Count(text, unwanted) != 50 {
			return fmt.Errorf("%d are parked; named are %s", count, text)
		}
		return nil
	})

	// A change passes them all, in either direction, and one that mends an object ends
	// its parking at once.
	env.Patch(t, r.Hub, "app-1", map[string]any{"metadata": map[string]any{"labels": map[string]any{"unwanted": nil}}})
	env.Patch(t, r.Hub, "app-0", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": "2"}}})
	env.Eventually(t, "a change and an object that was mended arrive", func() error {
		return errors.Join(env.FieldIs(ctx, r.Spoke, "app-0", "2", "spec", "source", "targetRevision"), env.FieldIs(ctx, r.Spoke, "app-1", "1", "spec", "source", "targetRevision"))
	})
	if _, err := r.Spoke.Patch(ctx, "app-1", types.MergePatchType, []byte(`{"status":{"health":{"status":"Healthy"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "its status comes back, and its condition is gone", func() error {
		return env.FieldIs(ctx, r.Hub, "app-1", "map[health:map[status:Healthy]]", "status")
	})
	if now := attemptsOf(t, r); now != connects {
		t.Errorf("the agent connected %v times meanwhile", now-connects)
	}

	// Another round of refusals finds the memory of the first: what is refused is
	// kept once.
	grown := memory(t, w, r)
	failures := func() (float64, error) {
		return env.Metric(ctx, r.Agent.AdminAddress, "argomesh_mirror_apply_seconds_count")
	}
	tried, err := failures()
	if err != nil {
		t.Fatal(err)
	}
	const longest = 5*time.Minute + 5*time.Minute/4 // pause of what is refused again and again
	again, cancel := context.WithTimeout(ctx, longest+env.Patience)
	defer cancel()
	if err := harness.Eventually(again, "all are tried again", func() error {
		now, err := failures()
		if err == nil && now < tried+invalid-1 {
			err = fmt.Errorf("%v of %d", now-tried, invalid-1)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for process, after := range memory(t, w, r) {
		t.Logf("%s: %d KiB before, %d KiB with %d refused objects, %d KiB after they were tried again",
			process, before[process]>>10, grown[process]>>10, invalid, after>>10)
		if after > before[process]+64<<20 {
			t.Errorf("%s grew from %d to %d KiB", process, before[process]>>10, after>>10)
		}
	}
}

// memory is what the two ends of the link use, in bytes.
func memory(t *testing.T, w *env.Bare, r *env.BareAgent) map[string]int64 {
	t.Helper()
	used := map[string]int64{}
	for _, p := range []*harness.Process{w.Principal.Process, r.Agent.Process} {
		bytes, err := p.Memory()
		if err != nil {
			t.Fatal(err)
		}
		used[p.Name()] = bytes
	}
	return used
}
