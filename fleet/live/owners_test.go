package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// notSynced is a store that does not know all yet.
type notSynced struct{ *memory.Store }

func (notSynced) Synced() <-chan struct{} { return nil }

func TestOwners(t *testing.T) {
	edge1, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	registry := &fleet.Registry{}
	registry.Set([]v1alpha1.Agent{
		{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", UID: "u1"}, Spec: v1alpha1.AgentSpec{Mapping: &v1alpha1.AgentMapping{
			Namespaces: []v1alpha1.MappedNamespace{{Hub: "edge-1"}, {Hub: "edge-1-team", Spoke: "team"}},
		}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "edge-2", UID: "u2"}, Spec: v1alpha1.AgentSpec{Suspended: true}},
	})
	store := memory.New(memory.Config{})
	server := func(name identity.AgentName) string { return controller.ClusterServer("https://proxy:9090", name) }
	byDestination := false
	rules := func(name identity.AgentName, _ v1alpha1.Agent) ownership.Rules {
		r := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Agent: name, Namespace: "argocd", ClusterServer: server(name), ByDestination: byDestination}}}
		if byDestination {
			r.Namespaces, r.ChildNamespace = []string{"edge-*"}, name.String()
		} else if name == edge1 {
			r.Pairs = []mapping.Pair{{Hub: "edge-1"}, {Spoke: "team", Hub: "edge-1-team"}}
		}
		return r
	}
	for name, destination := range map[string]string{
		"by-name": `{"name":"edge-1"}`, "by-server": `{"server":"https://proxy:9090/agents/edge-1"}`, "both": `{"name":"edge-1","server":"https://proxy:9090/agents/edge-1"}`,
		"of-another": `{"name":"edge-2"}`, "of-the-hub": `{"server":"https://kubernetes.default.svc"}`, "at-another": `{"server":"https://proxy:9090/agents/edge-2"}`, "nowhere": `{}`,
	} {
		for _, namespace := range []string{"edge-1", "edge-1-team", "argocd", "other"} {
			key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
			raw := fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":%q,"name":%q},"spec":{"destination":%s}}`, namespace, name, destination)
			if _, err := store.Create(t.Context(), key, []byte(raw)); err != nil {
				t.Fatal(err)
			}
		}
	}
	of := func(name string, known bool) redis.Target {
		return redis.Target{Agent: edge1, UID: "u1", Instance: appkey.Instance{Name: name}, Known: known}
	}
	o := &Resolver{Registry: registry, Store: store, Namespace: "argocd", Rules: rules}
	check := func(all map[appkey.Instance]redis.Target) {
		t.Helper()
		for instance, want := range all {
			got, owned, err := o.Owner(instance)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(identity.AgentName{})); err != nil || owned != (want != redis.Target{}) || diff != "" {
				t.Errorf("Owner(%s) = %t, %v (-want +got)\n%s", instance, owned, err, diff)
			}
		}
	}
	team := of("by-name", true)
	team.Instance.Namespace = "team"
	check(map[appkey.Instance]redis.Target{
		{Namespace: "edge-1-team", Name: "by-name"}: team,
		{Namespace: "edge-1", Name: "by-name"}:      of("by-name", true),
		{Namespace: "edge-1", Name: "by-server"}:    of("by-server", true),
		{Namespace: "edge-1", Name: "none"}:         of("none", false),
		// Both is an error to Argo CD, and to us.
		{Namespace: "edge-1", Name: "both"}:       {},
		{Namespace: "edge-1", Name: "of-another"}: {},
		{Namespace: "edge-1", Name: "of-the-hub"}: {},
		{Namespace: "edge-1", Name: "at-another"}: {},
		{Namespace: "edge-1", Name: "nowhere"}:    {},
		{Namespace: "edge-9", Name: "by-name"}:    {},
		{Name: "by-name"}:                         {},
	})
	if _, owned, err := o.Owner(appkey.Instance{Namespace: "edge-2", Name: "x"}); !owned || !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Owner() of one that is suspended = %t, %v", owned, err)
	}
	o.Store = notSynced{store}
	if _, owned, err := o.Owner(appkey.Instance{Namespace: "edge-1", Name: "none"}); !owned || err == nil {
		t.Errorf("Owner() before the Applications are known = %t, %v", owned, err)
	}
	o.Store = store

	// By destination the namespace is the same on the spoke, and Argo CD's own is Argo CD's own.
	byDestination = true
	o.Registry = &fleet.Registry{Mapping: fleet.Mapping{
		Namespace: "argocd", ByDestination: true, Admits: func(namespace string) bool { return strings.HasPrefix(namespace, "edge-") }, Server: server,
	}}
	if _, owned, err := o.Owner(appkey.Instance{Name: "by-name"}); !owned || err == nil {
		t.Errorf("Owner() before the Agents are known = %t, %v", owned, err)
	}
	o.Registry.Set([]v1alpha1.Agent{{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", UID: "u1"}, Spec: v1alpha1.AgentSpec{
		Mode: v1alpha1.ModeManaged, ChildApplications: v1alpha1.ChildApplicationsMirror,
	}}})
	if _, err := store.Create(t.Context(), stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "child"}, []byte(
		`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"edge-1","name":"child","annotations":{`+
			`"argocd.argoproj.io/source-uid":"u","argomesh.io/source":"{\"child\":true,\"agent\":\"edge-1\"}"}},"spec":{"destination":{"name":"edge-1"}}}`)); err != nil {
		t.Fatal(err)
	}
	inEdge1 := of("by-name", true)
	inEdge1.Instance.Namespace = "edge-1"
	check(map[appkey.Instance]redis.Target{
		{Name: "by-name"}:                         of("by-name", true),
		{Name: "of-the-hub"}:                      {},
		{Name: "none"}:                            {},
		{Namespace: "edge-1", Name: "by-name"}:    inEdge1,
		{Namespace: "edge-1", Name: "child"}:      of("child", true), // of Argo CD's namespace there
		{Name: "child"}:                           {},
		{Namespace: "edge-1", Name: "both"}:       {},
		{Namespace: "edge-1", Name: "of-another"}: {},
		{Namespace: "edge-1", Name: "none"}:       {},
		{Namespace: "other", Name: "by-name"}:     {},
	})
}

// Anyone who asked who owns an Application is told when to ask again.
// syncedLater is a store that knows all once its channel is closed.
type syncedLater struct {
	*memory.Store
	synced chan struct{}
}

func (s syncedLater) Synced() <-chan struct{} { return s.synced }

// A principal that has just started serves callers of Redis once it knows whose each
// Application is, and if it cannot know, after a while.
func TestOwnersAwait(t *testing.T) {
	const limit = 10 * time.Second
	for name, c := range map[string]struct{ agents, applications, want time.Duration }{
		"both are known soon":            {agents: time.Second, applications: 2 * time.Second, want: 2 * time.Second},
		"the Applications are first":     {agents: 2 * time.Second, applications: time.Second, want: 2 * time.Second},
		"no Agents":                      {agents: time.Hour, applications: time.Second, want: limit},
		"no Applications":                {agents: time.Second, applications: time.Hour, want: limit},
		"the API server does not answer": {agents: time.Hour, applications: time.Hour, want: limit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, synced := &fleet.Registry{}, make(chan struct{})
				o := &Resolver{Registry: registry, Store: syncedLater{memory.New(memory.Config{}), synced}}
				agents := time.AfterFunc(c.agents, func() { registry.Set(nil) })
				applications := time.AfterFunc(c.applications, func() { close(synced) })
				defer agents.Stop()
				defer applications.Stop()
				began := time.Now()
				o.Await(t.Context(), limit)
				if got := time.Since(began); got != c.want {
					t.Errorf("it waited for %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestOwnersWatch(t *testing.T) {
	registry, store := &fleet.Registry{}, memory.New(memory.Config{})
	o := &Resolver{Registry: registry, Store: store, Namespace: "argocd", Rules: func(identity.AgentName, v1alpha1.Agent) ownership.Rules { return ownership.Rules{} }}
	told, ended := make(chan appkey.Instance, 100), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		o.Watch(ctx, func(i appkey.Instance) { told <- i })
	}()
	hears := func(what string, want ...appkey.Instance) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-told:
				if got != w {
					t.Fatalf("%s: told of %q, want %q", what, got, w)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: nothing is told", what)
			}
		}
	}
	hears("at the begin", appkey.Instance{})
	registry.Set(nil)
	hears("Agents changed", appkey.Instance{})
	write := func(namespace string) {
		t.Helper()
		key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "shop"}
		raw := fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":%q,"name":"shop"},"spec":{}}`, namespace)
		if _, err := store.Create(t.Context(), key, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	write("edge-1")
	hears("an Application came", appkey.Instance{Namespace: "edge-1", Name: "shop"})
	write("argocd")
	hears("one came that has two names", appkey.Instance{Namespace: "argocd", Name: "shop"}, appkey.Instance{Name: "shop"})
	cancel()
	<-ended
	registry.Set(nil)
	write("edge-2")
	if len(told) != 0 {
		t.Errorf("%d are told after the end", len(told))
	}
}

// What is remembered of Applications is of the object that is there, and bounded.
func TestDestinationsAreBounded(t *testing.T) {
	o := &Resolver{}
	object := func(name, version, destination string) backends.Object {
		return backends.Object{
			Key: stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}, UID: "u", ResourceVersion: version,
			Raw: fmt.Appendf(nil, `{"spec":{"destination":{"name":%q}}}`, destination),
		}
	}
	for version, want := range []string{"edge-1", "edge-2"} {
		for range 2 {
			if got := o.destination(object("shop", fmt.Sprint(version), want)).Placement().Name; got != want {
				t.Errorf("version %d runs at %q, want %q", version, got, want)
			}
		}
	}
	if got := o.destination(object("shop", "1", "not read")).Placement().Name; got != "edge-2" {
		t.Errorf("what was read is read again: %q", got)
	}
	for i := len(o.seen); i < maxSeen; i++ {
		o.destination(object(fmt.Sprint("a", i), "1", "edge-1"))
	}
	if len(o.seen) != maxSeen {
		t.Errorf("at the limit %d are remembered, want %d", len(o.seen), maxSeen)
	}
	if o.destination(object("one-more", "1", "edge-1")); len(o.seen) > maxSeen {
		t.Errorf("beyond the limit %d are remembered", len(o.seen))
	}
}

// What is found of a spoke's cache shows in its session, whichever came first.
func TestFoundCaches(t *testing.T) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	s := sessions.New("here")
	s.Found(name, "it differs")
	if got := s.Session(name); got.CacheKnown {
		t.Errorf("Session() = %+v without a session", got)
	}
	closed := s.Open(server.Session{Agent: stream.Agent{Name: name}})
	shows := func(known bool, mismatch string) {
		t.Helper()
		if got := s.Session(name); got.CacheKnown != known || got.CacheMismatch != mismatch {
			t.Errorf("Session() = %t, %q, want %t, %q", got.CacheKnown, got.CacheMismatch, known, mismatch)
		}
	}
	shows(true, "it differs")
	var told []identity.AgentName
	cancel := s.Subscribe(func(name identity.AgentName) { told = append(told, name) })
	s.Found(name, "")
	if !slices.Equal(told, []identity.AgentName{name}) {
		t.Errorf("told of %v when the cache fits, want of %s", told, name)
	}
	shows(true, "")
	s.Found(name, "")
	if len(told) != 1 {
		t.Error("what is known is told as a change")
	}
	cancel()
	closed()
	shows(true, "")
	s.Forget(name)
	s.Open(server.Session{Agent: stream.Agent{Name: name}})
	shows(false, "")
}
