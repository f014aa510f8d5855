//go:build linux

package bounds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestProjectsOfASpokeAreBound has an autonomous spoke make more AppProjects than one may
// have, and one that is larger than one may be. Argo CD's own namespace on the hub gets no
// more of them, the Agent says so and how to raise it, and so it stays when the principal
// starts again: what is there is updated, and the rest waits until the limit is raised.
func TestProjectsOfASpokeAreBound(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	ctx := t.Context()
	w, err := env.StartBareOn(ctx, harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const most, all = 50, 60 // by default, and what the spoke has
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	r := w.Connect(t, "many", "autonomous")
	large := env.ProjectNamed("large")
	large.Object["spec"].(map[string]any)["sourceRepos"] = []any{"https://git.invalid/" + strings.Repeat("a", 64<<10)}
	env.Create(t, r.Projects(), large)
	env.Eventually(t, "one that is too large is parked", func() error {
		return r.Parked(ctx, "large", "one AppProject may have 65536; spec.limits.appProjectBytes of the Agent can be raised")
	})
	var g errgroup.Group
	g.SetLimit(8)
	for i := range all {
		g.Go(func() error {
			_, err := r.Projects().Create(ctx, env.ProjectNamed(fmt.Sprint("project-", i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	shown := func(ctx context.Context) (names []string, err error) {
		list, err := w.HubProjects().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			if name, its := strings.CutPrefix(o.GetName(), r.Name+"-"); its {
				names = append(names, name)
			}
		}
		return names, nil
	}
	bounded := func() error {
		names, err := shown(ctx)
		if err == nil && len(names) != most {
			err = fmt.Errorf("the hub has %d projects of the spoke", len(names))
		}
		return errors.Join(err, env.ConditionIs(ctx, registry, r.Name, "OverBudget", "Objects", "status.parked names them, and which limit can be raised"),
			env.FieldIs(ctx, registry, r.Name, int64(all+1-most), "status", "counts", "parked"))
	}
	env.Eventually(t, "as many as one may have are there, and the Agent says that there are more", bounded)
	before, err := shown(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if err := w.Principal.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.Principal.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Patch(t, r.Projects(), before[0], map[string]any{"spec": map[string]any{"description": "changed"}})
	env.Eventually(t, "what is there is updated", func() error {
		return env.FieldIs(ctx, w.HubProjects(), r.Name+"-"+before[0], "changed", "spec", "description")
	})
	env.Eventually(t, "there are no more than before", bounded)
	if after, err := shown(ctx); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("others are there: %v, before %v, %v", after, before, err)
	}

	env.Patch(t, registry, r.Name, map[string]any{"spec": map[string]any{"limits": map[string]any{"appProjects": all}}})
	env.Eventually(t, "the others come when the limit is raised, but for the large one", func() error {
		names, err := shown(ctx)
		if err == nil && len(names) != all {
			err = fmt.Errorf("the hub has %d projects of the spoke", len(names))
		}
		return errors.Join(err, env.Gone(ctx, w.HubProjects(), r.Name+"-large"))
	})
}
