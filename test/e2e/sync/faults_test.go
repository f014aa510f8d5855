//go:build linux

package sync

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// side is one side of a link for change and equal.
type side struct {
	apps   dynamic.ResourceInterface
	prefix string
}

// holds is what equal compares of an Application.
func holds(o *unstructured.Unstructured) string {
	revision, _, _ := unstructured.NestedString(o.Object, "spec", "source", "targetRevision")
	return fmt.Sprint(revision, " ", o.GetLabels()["change"])
}

// change makes n changes to Applications named prefix-<i>, most of them updates,
// some creates and deletes, and calls at half-way once that many are done. It returns
// what the Applications hold then, by name.
func change(ctx context.Context, s side, n int, build func(name string) *unstructured.Unstructured, half func() error) (written map[string]string, err error) {
	const names = 20
	written = map[string]string{}
	for i := range n {
		if i == n/2 {
			if err := half(); err != nil {
				return nil, err
			}
		}
		name := fmt.Sprintf("%s-%d", s.prefix, i%names)
		_, exists := written[name]
		switch {
		case !exists:
			app := build(name)
			app.SetLabels(map[string]string{"change": fmt.Sprint(i)})
			_, err = s.apps.Create(ctx, app, metav1.CreateOptions{})
			written[name] = holds(app)
		case i%13 == 0:
			err = s.apps.Delete(ctx, name, metav1.DeleteOptions{})
			delete(written, name)
		default:
			err = harness.Eventually(ctx, "an update", func() error { // others write, too
				o, err := s.apps.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				o.SetLabels(map[string]string{"change": fmt.Sprint(i)})
				if err := unstructured.SetNestedField(o.Object, fmt.Sprint("rev-", i), "spec", "source", "targetRevision"); err != nil {
					return err
				}
				written[name] = holds(o)
				_, err = s.apps.Update(ctx, o, metav1.UpdateOptions{})
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("change %d of %s: %w", i, name, err)
		}
	}
	return written, nil
}

// Equal is a check that sides hold the same Applications of their prefix, those that
// are wanted.
func Equal(ctx context.Context, want map[string]string, sides ...side) error {
	for _, s := range sides {
		list, err := s.apps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), s.prefix+"-") {
				got[o.GetName()] = holds(&o)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("a side differs from what was written (-written +there):\n%s", diff)
		}
	}
	return nil
}

func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	for what, kill := range map[string]func() error{
		"principal": func() error { return env.KillAndStart(ctx, w.Principal.Process) },
		"agents": func() error {
			for _, a := range w.Agents {
				if err := env.KillAndStart(ctx, a.Process); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			hub, copies := side{w.OnHub(env.Managed), "k-" + what}, side{w.OnSpoke(env.Managed), "k-" + what}
			local, mirrors := side{w.OnSpoke(env.Autonomous), "k-" + what}, side{w.OnHub(env.Autonomous), "k-" + what}
			killed := make(chan error, 1)
			g, ctx := errgroup.WithContext(ctx)
			var onHub, onSpoke map[string]string
			g.Go(func() (err error) {
				// The changes go on while the process dies and comes back.
				onHub, err = change(ctx, hub, 200, func(name string) *unstructured.Unstructured {
					return w.Idle(name, env.Managed, env.Managed)
				}, func() error {
					go func() { killed <- kill() }()
					return nil
				})
				return err
			})
			g.Go(func() (err error) {
				onSpoke, err = change(ctx, local, 200, func(name string) *unstructured.Unstructured {
					return w.Idle(name, harness.ArgoCDNamespace, "")
				}, func() error { return nil })
				return err
			})
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if err := <-killed; err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "both sides of the managed agent are equal", func() error { return Equal(t.Context(), onHub, hub, copies) })
			env.Eventually(t, "both sides of the autonomous agent are equal", func() error { return Equal(t.Context(), onSpoke, local, mirrors) })
		})
	}
}

// seesAgain waits until argocd-server, which waits longer and longer for an API server that
// is away, sees what is made now, lest it be blind to what the next test makes.
func seesAgain(t *testing.T, w *env.Argo) {
	t.Helper()
	c := newCommander(t, w)
	hubProject(t, w, "made-since", nil)
	app := w.Idle("made-since", env.Managed, env.Managed)
	app.Object["spec"].(map[string]any)["project"] = "made-since"
	env.Create(t, w.OnHub(env.Managed), app)
	c.remove(env.Managed, "made-since")
	env.Eventually(t, "argocd-server sees what was made since", func() error {
		return c.call(http.MethodGet, "/api/v1/applications/made-since", url.Values{"appNamespace": {env.Managed}}, nil, nil)
	})
}

// outage is how long an API server is away.
const outage = 20 * time.Second

func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	for what, cluster := range map[string]*harness.ControlPlane{"hub": w.Hub, "spoke": w.Edge1} {
		t.Run(what, func(t *testing.T) {
			hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
			env.Create(t, hub, w.Idle("away-"+what, env.Managed, env.Managed))
			env.Eventually(t, "it is on the spoke", func() error {
				return env.FieldIs(ctx, spoke, "away-"+what, harness.Branch, "spec", "source", "targetRevision")
			})
			pids := map[string]int{"principal": w.Principal.PID(), "agent": w.Agents[env.Managed].PID()}
			if err := cluster.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			back := time.After(outage)
			if what == "spoke" {
				env.Patch(t, hub, "away-"+what, map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": "during"}}})
			} else {
				env.Patch(t, spoke, "away-"+what, map[string]any{"status": map[string]any{"sync": map[string]any{"status": "OutOfSync"}}})
			}
			select {
			case <-back:
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
			if err := cluster.Server.Start(ctx); err != nil {
				t.Fatal(err)
			}
			revision := "during"
			if what == "hub" {
				env.Eventually(t, "the status of the time without the hub is there", func() error {
					return env.FieldIs(ctx, hub, "away-"+what, "OutOfSync", "status", "sync", "status")
				})
				revision = "after"
				env.Eventually(t, "the hub takes a change", func() error {
					o, err := hub.Get(ctx, "away-"+what, metav1.GetOptions{})
					if err != nil {
						return err
					}
					if err := unstructured.SetNestedField(o.Object, revision, "spec", "source", "targetRevision"); err != nil {
						return err
					}
					_, err = hub.Update(ctx, o, metav1.UpdateOptions{})
					return err
				})
			}
			env.Eventually(t, "the change reaches the spoke", func() error {
				return env.FieldIs(ctx, spoke, "away-"+what, revision, "spec", "source", "targetRevision")
			})
			if what == "hub" {
				seesAgain(t, w)
			}
			if pids["principal"] != w.Principal.PID() || pids["agent"] != w.Agents[env.Managed].PID() {
				t.Error("one of our processes did not survive")
			}
			for _, p := range []*harness.Process{w.Principal.Process, w.Agents[env.Managed].Process} {
				select {
				case <-p.Exited():
					t.Errorf("%s has ended: %v", p.Name(), p.ExitError())
				default:
				}
			}
		})
	}
}
