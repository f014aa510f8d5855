package argocd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/sim"
)

const (
	agentName     = "edge-1"
	argocd        = "argocd"
	clusterServer = "https://proxy:9090/agents/" + agentName
)

// linkEnv is a hub and a spoke that are connected, in a synctest bubble.
type linkEnv struct {
	t          *testing.T
	ctx        context.Context //nolint:containedctx // the bubble's life
	hub, spoke *memory.Store
	// rules changes what the hub's rules are by default; nil for not at all.
	rules func(*ownership.Rules)
}

// run runs f in a bubble of its own.
func run(t *testing.T, mode stream.Mode, f func(w *linkEnv)) {
	t.Helper()
	runAs(t, mode, nil, f)
}

// runAs is run with other rules on the hub.
func runAs(t *testing.T, mode stream.Mode, rules func(*ownership.Rules), f func(w *linkEnv)) {
	t.Helper()
	kinds := []stream.Kind{stream.Application, stream.AppProject, stream.ConfigMap, stream.Secret}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		defer wait.Wait()
		defer cancel()
		w := &linkEnv{t: t, ctx: ctx, hub: memory.New(memory.Config{Kinds: kinds}), spoke: memory.New(memory.Config{Kinds: kinds}), rules: rules}
		if mode == stream.Managed { // without its project no Application leaves the hub
			w.put(w.hub, projectKey("default"), open("default", func(*v1alpha1.AppProjectSpec) {}))
		}
		atOnce := func() time.Duration { return 0 }
		a, b := sim.Pipe(ctx, atOnce, atOnce)
		for _, end := range []struct {
			side  stream.Side
			store *memory.Store
			conn  *sim.Carrier
		}{{stream.Hub, w.hub, a}, {stream.Spoke, w.spoke, b}} {
			m := w.mirror(end.side, mode, end.store)
			wait.Go(func() {
				if err := m.Run(ctx); err != nil {
					t.Errorf("Run() = %v", err)
				}
			})
			wait.Go(func() {
				// It ends with the bubble.
				_ = m.Serve(ctx, mirror.Peer{Connection: "c-1", HubUID: "hub-1"}, end.conn)
			})
		}
		f(w)
	})
}

// sides are where AppProjects come from and where they go, and what their names begin
// with there.
func sides(w *linkEnv, mode stream.Mode) (source, sink *memory.Store, prefix string) {
	if mode == stream.Autonomous {
		return w.spoke, w.hub, agentName + "-"
	}
	return w.hub, w.spoke, ""
}

func theAgent(t testing.TB) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName(agentName)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func (w *linkEnv) mirror(side stream.Side, mode stream.Mode, store *memory.Store) *mirror.Mirror {
	w.t.Helper()
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: side, Mode: mode, Agent: theAgent(w.t), Namespace: argocd, ClusterServer: clusterServer}}}
	if side == stream.Hub && w.rules != nil {
		w.rules(&rules)
	}
	m, err := mirror.New(mirror.Config{
		Rules: rules,
		Store: store, Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// settle lets both sides come to rest.
func (w *linkEnv) settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

func appKey(namespace string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "guestbook"}
}

func projectKey(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: argocd, Name: name}
}

func typeMeta(kind stream.Kind) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "argoproj.io/v1alpha1", Kind: string(kind)}
}

// put creates an object, or replaces the one that is there.
func (w *linkEnv) put(store *memory.Store, key stream.ResourceKey, object any) {
	w.t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		w.t.Fatal(err)
	}
	old, err := store.Read(w.ctx, key)
	switch {
	case errors.Is(err, stream.ErrNotFound):
		_, err = store.Create(w.ctx, key, raw)
	case err == nil:
		_, err = store.Update(w.ctx, old, raw)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *linkEnv) remove(store *memory.Store, key stream.ResourceKey) {
	w.t.Helper()
	if err := store.Delete(w.ctx, key, backends.Preconditions{}); err != nil {
		w.t.Fatal(err)
	}
}

// read decodes an object into Argo CD's type and fails on a field that the type
// does not have. It returns false when there is no object.
func (w *linkEnv) read(store *memory.Store, key stream.ResourceKey, into any) bool {
	w.t.Helper()
	o, err := store.Read(w.ctx, key)
	if errors.Is(err, stream.ErrNotFound) {
		return false
	}
	if err != nil {
		w.t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(o.Raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		w.t.Fatalf("%s is not what Argo CD reads: %v\n%s", key, err, o.Raw)
	}
	return true
}

// app reads an Application that must be there.
func (w *linkEnv) app(store *memory.Store, namespace string) *v1alpha1.Application {
	w.t.Helper()
	var app v1alpha1.Application
	if !w.read(store, appKey(namespace), &app) {
		w.t.Fatalf("%s is not there", appKey(namespace))
	}
	return &app
}

// guestbook is an Application with a spec of many fields.
func guestbook(namespace string) *v1alpha1.Application {
	prune := true
	limit := int64(3)
	return &v1alpha1.Application{
		TypeMeta:   typeMeta(stream.Application),
		ObjectMeta: metav1.ObjectMeta{Name: "guestbook", Namespace: namespace, Labels: map[string]string{"team": "a"}},
		Spec: v1alpha1.ApplicationSpec{
			Project:     "default",
			Destination: v1alpha1.ApplicationDestination{Name: agentName, Namespace: "web"},
			Sources: v1alpha1.ApplicationSources{{
				RepoURL: "https://git/repo", Path: "p", TargetRevision: "HEAD",
				Helm: &v1alpha1.ApplicationSourceHelm{
					Parameters: []v1alpha1.HelmParameter{{Name: "a", Value: "<b>", ForceString: true}},
				},
			}},
			SyncPolicy: &v1alpha1.SyncPolicy{
				Automated:   &v1alpha1.SyncPolicyAutomated{Prune: &prune, Enabled: &prune},
				SyncOptions: v1alpha1.SyncOptions{"CreateNamespace=true"},
				Retry:       &v1alpha1.RetryStrategy{Limit: 5, Backoff: &v1alpha1.Backoff{Duration: "5s"}},
			},
			IgnoreDifferences:    v1alpha1.IgnoreDifferences{{Kind: "Deployment", Group: "apps", JSONPointers: []string{"/spec/replicas"}}},
			Info:                 []v1alpha1.Info{{Name: "url", Value: "https://x"}},
			RevisionHistoryLimit: &limit,
		},
	}
}
