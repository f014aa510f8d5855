//go:build linux

package sync

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

var (
	agentResource = schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}
)

// cluster is what argocd-server's API tells of one.
type cluster struct {
	Name, Server string
	Info         struct {
		ConnectionState struct {
			Status, Message string
			AttemptedAt     time.Time
		}
		ServerVersion string
		CacheInfo     struct {
			ResourcesCount, APIsCount json.Number
			LastCacheSyncTime         time.Time
		}
		ApplicationsCount json.Number
	}
}

// clusterOf returns an agent's, as the list of clusters shows it and as it is shown
// alone.
func clusterOf(ctx context.Context, a env.ArgoAPI, agent string) (c cluster, err error) {
	var list struct{ Items []cluster }
	if err := a.Call(ctx, http.MethodGet, "clusters", nil, &list); err != nil {
		return c, err
	}
	i := slices.IndexFunc(list.Items, func(c cluster) bool { return c.Name == agent })
	if i < 0 {
		return c, fmt.Errorf("cluster %s is not listed", agent)
	}
	var alone cluster // as the web page asks for it: every colon and slash escaped
	if err := a.Call(ctx, http.MethodGet, "clusters/"+url.QueryEscape(list.Items[i].Server)+"?id.type=url", nil, &alone); err != nil {
		return c, err
	}
	if diff := cmp.Diff(list.Items[i], alone); diff != "" {
		return c, fmt.Errorf("the list and the cluster alone differ: %s", diff)
	}
	return alone, nil
}

// soon is eventually with the time it took, which is to be 10 seconds at most on a machine
// with nothing else to do.
func soon(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	began := time.Now()
	env.Eventually(t, what, func() error { return check(t.Context()) })
	t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
}

// connected is a check that Argo CD shows an agent as connected, with all that is
// known of its cluster.
func connected(ctx context.Context, w *env.Argo, a env.ArgoAPI, agent string) error {
	c, err := clusterOf(ctx, a, agent)
	if err != nil {
		return err
	}
	apps, err := w.OnSpoke(agent).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	version, err := kubernetesVersion(w, agent)
	if err != nil {
		return err
	}
	state, info := c.Info.ConnectionState, c.Info.CacheInfo
	switch {
	case state.Status != "Successful" || !strings.Contains(state.Message, "is connected since "+state.AttemptedAt.UTC().Format(time.RFC3339)):
		return fmt.Errorf("the connection is shown as %+v", state)
	case c.Info.ServerVersion != version:
		return fmt.Errorf("the version of Kubernetes is shown as %q", c.Info.ServerVersion)
	case c.Info.ApplicationsCount.String() != fmt.Sprint(len(apps.Items)):
		return fmt.Errorf("%s applications are shown, there are %d", c.Info.ApplicationsCount, len(apps.Items))
	case positive(info.APIsCount) != nil || positive(info.ResourcesCount) != nil || info.LastCacheSyncTime.IsZero():
		return fmt.Errorf("the cache is shown as %+v", info)
	}
	return nil
}

// kubernetesVersion asks the API server of an agent.
func kubernetesVersion(w *env.Argo, agent string) (string, error) {
	at := map[string]*harness.ControlPlane{env.Managed: w.Edge1, env.Autonomous: w.Edge2}[agent]
	client, err := discovery.NewDiscoveryClientForConfig(at.REST())
	if err != nil {
		return "", err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
}

func positive(n json.Number) error {
	if i, err := n.Int64(); err != nil || i <= 0 {
		return fmt.Errorf("%q is not above zero", n)
	}
	return nil
}

// shownAway is a check that Argo CD shows that an agent has not been connected since a
// moment between from and now, and still what was known of it.
func shownAway(ctx context.Context, w *env.Argo, a env.ArgoAPI, agent string, from time.Time) error {
	c, err := clusterOf(ctx, a, agent)
	if err != nil {
		return err
	}
	version, err := kubernetesVersion(w, agent)
	if err != nil {
		return err
	}
	state := c.Info.ConnectionState
	_, text, ok := strings.Cut(state.Message, "is not connected since ")
	text, _, _ = strings.Cut(text, ";") // what was parked when it went stays said
	since, err := time.Parse(time.RFC3339, text)
	switch {
	case state.Status != "Failed" || !ok || err != nil:
		return fmt.Errorf("the connection is shown as %+v", state)
	case since.Before(from.Truncate(time.Second)) || since.After(time.Now()):
		return fmt.Errorf("it is said to be away since %s, it was killed at %s", since, from)
	case c.Info.ServerVersion != version:
		return fmt.Errorf("the version of Kubernetes is shown as %q", c.Info.ServerVersion)
	}
	return positive(c.Info.CacheInfo.ResourcesCount)
}

func TestClusterInfo(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnArgo(t), t.Context()
	a := w.API(t)
	for agent, build := range map[string]func() error{
		env.Managed: func() error {
			_, err := w.OnHub(env.Managed).Create(ctx, w.Plain("shown", env.Managed, env.Managed), metav1.CreateOptions{})
			return err
		},
		env.Autonomous: func() error {
			_, err := w.OnSpoke(env.Autonomous).Create(ctx, w.Plain("shown", harness.ArgoCDNamespace, ""), metav1.CreateOptions{})
			return err
		},
	} {
		if err := build(); err != nil {
			t.Fatal(err)
		}
		// Before there is an Application the spoke's Argo CD looks at nothing there.
		env.Eventually(t, "Argo CD to show the cluster of "+agent, func() error { return connected(ctx, w, a, agent) })
	}

	agent := w.Agents[env.Managed]
	for _, end := range []struct {
		what string
		end  func() error
	}{
		{"is killed", agent.Kill},
		{"stops", func() error { return agent.Stop(ctx) }},
	} {
		began := time.Now()
		if err := end.end(); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show that the agent is away when it "+end.what, func(ctx context.Context) error {
			return shownAway(ctx, w, a, env.Managed, began)
		})
		if err := agent.Start(ctx); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show that the agent is back", func(ctx context.Context) error { return connected(ctx, w, a, env.Managed) })
	}

	t.Run("redis comes back empty", func(t *testing.T) {
		if err := w.HubArgo.Redis.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show the cluster again", func(ctx context.Context) error { return connected(ctx, w, a, env.Managed) })
	})
	t.Run("the agent goes while the principal is away", func(t *testing.T) {
		if err := w.Principal.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := agent.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := w.Principal.Start(ctx); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show that the agent is away", func(ctx context.Context) error {
			c, err := clusterOf(ctx, a, env.Managed)
			if err != nil {
				return err
			}
			if state := c.Info.ConnectionState; state.Status != "Failed" || !strings.Contains(state.Message, "is not connected") {
				return fmt.Errorf("the connection is shown as %+v", state)
			}
			return nil
		})
		if err := agent.Start(ctx); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show that the agent is back", func(ctx context.Context) error { return connected(ctx, w, a, env.Managed) })
	})
	t.Run("flapping writes nothing else", func(t *testing.T) { testFlap(t, w, a) })
}

// testFlap lets the connection of an agent come and go, and compares all that a
// connection has no business to change.
func testFlap(t *testing.T, w *env.Argo, a env.ArgoAPI) {
	ctx := t.Context()
	const rounds, apps = 6, 5
	written := map[string]string{}
	for i := range apps {
		name := fmt.Sprint("flap-", i)
		written[name] = holds(env.Create(t, w.OnHub(env.Managed), w.Idle(name, env.Managed, env.Managed)))
	}
	env.Eventually(t, "the Applications to arrive", func() error {
		return Equal(ctx, written, side{w.OnSpoke(env.Managed), "flap"})
	})
	soon(t, "Argo CD to count them", func(ctx context.Context) error { return connected(ctx, w, a, env.Managed) })
	before, err := versions(ctx, w)
	if err != nil {
		t.Fatal(err)
	}

	// Every write of an Agent is a change of its resourceVersion.
	watched, stop := context.WithCancel(ctx)
	defer stop()
	events, err := w.Hub.Resource(agentResource, harness.ArgoCDNamespace).Watch(watched, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writes := make(chan map[string]int)
	go func() {
		seen := map[string]int{}
		for event := range events.ResultChan() {
			if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == "MODIFIED" {
				seen[o.GetName()]++
			}
		}
		writes <- seen
	}()

	began := time.Now()
	for range rounds {
		killed := time.Now()
		if err := w.Agents[env.Managed].Kill(); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show that the agent is away", func(ctx context.Context) error { return shownAway(ctx, w, a, env.Managed, killed) })
		if err := w.Agents[env.Managed].Start(ctx); err != nil {
			t.Fatal(err)
		}
		soon(t, "Argo CD to show that the agent is back", func(ctx context.Context) error { return connected(ctx, w, a, env.Managed) })
	}
	took := time.Since(began)
	after, err := versions(ctx, w)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a connection that comes and goes wrote (-before +after)\n%s", diff)
	}
	stop()
	seen := <-writes
	// Its status shows each change of the connection once, and once which principal has
	// the new one; counts and expiry at most every 10 s, and that of the other agent the
	// latter alone.
	slow := int(took/(10*time.Second)) + 2
	if most := 3*rounds + slow; seen[env.Managed] < 2 || seen[env.Managed] > most {
		t.Errorf("%d writes of Agent %s in %d rounds, want at most %d", seen[env.Managed], env.Managed, rounds, most)
	}
	if seen[env.Autonomous] > slow {
		t.Errorf("%d writes of Agent %s, which did not flap, want at most %d", seen[env.Autonomous], env.Autonomous, slow)
	}
}

// versions returns the resourceVersions of what a connection must not change.
func versions(ctx context.Context, w *env.Argo) (map[string]string, error) {
	all := map[string]string{}
	for what, where := range map[string]dynamic.ResourceInterface{
		"hub application":   w.OnHub(env.Managed),
		"spoke application": w.OnSpoke(env.Managed),
		"hub project":       w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace),
		"spoke project":     w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace),
		"hub secret":        w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace),
	} {
		list, err := where.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			// Others' Applications are reconciled by Argo CD, and change by that.
			if !strings.HasSuffix(what, "application") || strings.HasPrefix(o.GetName(), "flap-") {
				all[what+" "+o.GetName()] = o.GetResourceVersion()
			}
		}
	}
	if len(all) < 12 {
		return nil, fmt.Errorf("there is little to compare: %v", all)
	}
	return all, nil
}
