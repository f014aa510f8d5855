package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

const cascade = "resources-finalizer.argocd.argoproj.io"

// m is generic JSON.
type m = map[string]any

// conn is one end of a connection in memory.
type conn struct {
	in, out chan stream.Message
	ended   <-chan struct{}
	watch   func(stream.Message) // of what is sent; may be nil
}

var errEnded = errors.New("the connection has ended")

func (c conn) Send(msg stream.Message) error {
	msg, err := stream.ParseFrame(stream.FrameOf(msg)) // as the wire does it
	if err != nil {
		return err
	}
	select {
	case c.out <- msg:
		if c.watch != nil {
			c.watch(msg)
		}
		return nil
	case <-c.ended:
		return errEnded
	}
}

func (c conn) Recv() (stream.Message, error) {
	select {
	case msg := <-c.in:
		return msg, nil
	case <-c.ended:
		return nil, errEnded
	}
}

// pipe returns both ends of a connection that ends with ctx.
func pipe(ctx context.Context) (hub, spoke conn) {
	down, up := make(chan stream.Message), make(chan stream.Message)
	return conn{in: up, out: down, ended: ctx.Done()}, conn{in: down, out: up, ended: ctx.Done()}
}

// pair is a hub and a spoke in a synctest bubble.
type pair struct {
	t          *testing.T
	hub, spoke end
	cancel     context.CancelCauseFunc
	ctx        context.Context //nolint:containedctx // the bubble's life
	wait       sync.WaitGroup
	connection atomic.Int64
	options    options
}

type end struct {
	*mirror.Mirror
	store     *memory.Store
	namespace string
}

func (e end) key(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: e.namespace, Name: name}
}

type options struct {
	mode       stream.Mode
	hub, spoke memory.Config
	subscribe  func(func(stream.ResourceKey)) func() // of the hub
	before     func(hub, spoke *memory.Store)
	configure  func(stream.Side, *mirror.Config)
	// statusDelay is mirror.Config's, on both sides; watch sees all that is sent.
	statusDelay time.Duration
	watch       func(stream.Message)
	children    bool             // the hub shows child applications
	unasked     bool             // the spoke shows them all the same
	writes      bool             // the spoke takes write credentials
	givesUp     bool             // the spoke can give an object up
	departing   bool             // the Agent is being deleted with a cascade
	sees        bool             // the hub confirms deletions, and the spoke checks what a Delete names
	stores      [2]*memory.Store // of hub and spoke, instead of new ones
	adopt       []string         // what may be adopted on the side that is not the owner's
	projects    []string         // of the hub beside default that admit everything
	mute        bool             // the hub shows no events
	former      []string         // hubs that the spoke had before, which this one does not inherit yet
}

// newPair starts both sides. They end with the test.
func newPair(t *testing.T, o options) *pair {
	t.Helper()
	if o.mode == 0 {
		o.mode = stream.Managed
	}
	r := &pair{t: t, options: o}
	r.ctx, r.cancel = context.WithCancelCause(t.Context())
	hub, spoke := o.stores[0], o.stores[1]
	if o.adopt != nil { // what was found is kept in Secrets
		o.hub.Kinds, o.spoke.Kinds = allKinds.Kinds, allKinds.Kinds
	}
	if hub == nil {
		hub, spoke = memory.New(o.hub), memory.New(o.spoke)
		if o.mode == stream.Managed {
			opened(t, hub, append([]string{"default"}, o.projects...)...)
		}
	}
	if o.before != nil {
		o.before(hub, spoke)
	}
	if o.configure == nil {
		o.configure = func(stream.Side, *mirror.Config) {}
	}
	r.hub = r.start(stream.Hub, o.mode, "edge-1", hub, o)
	r.spoke = r.start(stream.Spoke, o.mode, "argocd", spoke, o)
	t.Cleanup(func() {
		r.cancel(nil)
		r.wait.Wait()
	})
	return r
}

// opened gives a hub AppProjects that admit everything, and returns it. Without a project no
// Application leaves a hub.
func opened(t *testing.T, hub *memory.Store, names ...string) *memory.Store {
	t.Helper()
	for _, name := range names {
		_, err := hub.Create(t.Context(), stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: name}, text(t, m{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": m{"namespace": "argocd", "name": name},
			"spec": m{"sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"}, "destinations": []any{m{"server": "*", "namespace": "*"}}},
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	hub.Deliver(-1)
	return hub
}

func (r *pair) start(side stream.Side, mode stream.Mode, namespace string, store *memory.Store, o options) end {
	r.t.Helper()
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		r.t.Fatal(err)
	}
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := mirror.Config{
		Rules: ownership.Rules{
			Marks: copies.Marks{
				Map: mapping.Map{
					Side: side, Mode: mode, Agent: agent, Namespace: "argocd", ClusterServer: "https://proxy/agents/edge-1",
				},
			},
			Terminating: r.options.departing,
		},
		Store: store, Schemas: store, StatusDelay: r.options.statusDelay,
		Metrics: metrics,
		Tracer:  sdktrace.NewTracerProvider().Tracer(""),
		Log:     zerolog.Nop(),
	}
	if side == stream.Hub {
		cfg.Subscribe, cfg.Rules.Adopt = o.subscribe, o.adopt
	} else if o.adopt != nil {
		allowed := policy.Default()
		allowed.Adopt, allowed.Projects = o.adopt, []string{"*", "default"}
		cfg.Rules.Policy = &allowed
	}
	if side == stream.Hub && o.sees {
		cfg.Confirm = store.Confirm
	}
	o.configure(side, &cfg)
	mi, err := mirror.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.wait.Go(func() {
		if err := mi.Run(r.ctx); err != nil {
			r.t.Errorf("Run() = %v", err)
		}
	})
	return end{Mirror: mi, store: store, namespace: namespace}
}

// connect opens a connection and returns what ends it, and what both calls of
// Serve return.
func (r *pair) connect() (cut context.CancelFunc, served <-chan error) {
	r.t.Helper()
	ctx, cut := context.WithCancel(r.ctx)
	hub, spoke := pipe(ctx)
	hub.watch, spoke.watch = r.options.watch, r.options.watch
	peer := mirror.Peer{Connection: fmt.Sprint("c", r.connection.Add(1)), HubUID: "hub-1", Children: r.options.children, WriteCredentials: r.options.writes, GivesUp: r.options.givesUp, SeenDeletes: r.options.sees}
	errs := make(chan error, 2)
	r.wait.Go(func() { errs <- r.hub.Serve(r.ctx, peer, hub) })
	told := peer
	told.Children = told.Children || r.options.unasked
	told.FormerHubs, told.ShowsEvents = r.options.former, !r.options.mute
	r.wait.Go(func() { errs <- r.spoke.Serve(r.ctx, told, spoke) })
	synctest.Wait()
	return cut, errs
}

// pass lets virtual time pass until all is at rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *pair) create(e end, name string, meta, rest m) {
	r.t.Helper()
	metadata := m{"name": name, "namespace": e.namespace}
	maps.Copy(metadata, meta)
	fields := m{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata}
	maps.Copy(fields, rest)
	if _, err := e.store.Create(r.ctx, e.key(name), text(r.t, fields)); err != nil {
		r.t.Fatal(err)
	}
}

// update changes an object as a person would.
func (r *pair) update(e end, name string, change func(m)) {
	r.t.Helper()
	r.updateKey(e.store, e.key(name), change)
}

// updateKey reads, changes and writes, and does so again when the object was written
// in between, as every client of the API does.
func (r *pair) updateKey(store backends.Store, key stream.ResourceKey, change func(m)) {
	r.t.Helper()
	for {
		o, err := store.Read(r.ctx, key)
		if err != nil {
			r.t.Fatal(err)
		}
		fields := parse(r.t, o)
		change(fields)
		switch _, err := store.Update(r.ctx, o, text(r.t, fields)); {
		case err == nil:
			return
		case !errors.Is(err, stream.ErrConflict):
			r.t.Fatal(err)
		}
	}
}

func (r *pair) remove(e end, name string) {
	r.t.Helper()
	if err := e.store.Delete(r.ctx, e.key(name), backends.Preconditions{}); err != nil {
		r.t.Fatal(err)
	}
}

// get returns an object; nil when there is none.
func (r *pair) get(e end, name string) m {
	r.t.Helper()
	o, err := e.store.Read(r.ctx, e.key(name))
	switch {
	case errors.Is(err, stream.ErrNotFound):
		return nil
	case err != nil:
		r.t.Fatal(err)
	}
	return parse(r.t, o)
}

func (r *pair) stats(e end) mirror.Stats {
	r.t.Helper()
	s, err := e.Stats(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func text(t *testing.T, fields m) []byte {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func parse(t *testing.T, o backends.Object) m {
	t.Helper()
	var fields m
	if err := json.Unmarshal(o.Raw, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// at returns a nested field; nil when there is none.
func at(fields m, path ...string) any {
	var v any = fields
	for _, name := range path {
		fields, _ := v.(m)
		v = fields[name]
	}
	return v
}

func spec(path string) m {
	return m{"spec": m{"project": "default", "destination": m{"name": "edge-1", "namespace": "web"}, "source": m{"path": path}}}
}

// conditionOf returns the message of our condition that tells of a refusal; empty when
// there is none.
func conditionOf(app m) string { return messageOf(app, "ArgomeshError") }

// messageOf returns the message of a condition; empty when there is none.
func messageOf(app m, condition string) string {
	list, _ := at(app, "status", "conditions").([]any)
	for _, c := range list {
		if fields, _ := c.(m); fields["type"] == condition {
			return fields["message"].(string)
		}
	}
	return ""
}

func TestCreateEditAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.connect()
		r.create(r.hub, "a", m{"labels": m{"team": "x"}}, spec("one"))
		pass(time.Millisecond)
		want := m{"project": "default", "destination": m{"name": "in-cluster", "namespace": "web"}, "source": m{"path": "one"}}
		if diff := cmp.Diff(any(want), at(r.get(r.spoke, "a"), "spec")); diff != "" {
			t.Fatalf("the spoke after a create on the hub (-want +got)\n%s", diff)
		}

		r.update(r.spoke, "a", func(app m) {
			app["spec"].(m)["source"].(m)["path"] = "drift"
			app["metadata"].(m)["labels"] = m{"team": "y", "mine": "z"}
		})
		pass(time.Second) // what a second writer undoes is parked for half a second
		if diff := cmp.Diff(any(want), at(r.get(r.spoke, "a"), "spec")); diff != "" {
			t.Errorf("the spoke after a local edit (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(any(m{"team": "x", "mine": "z"}), at(r.get(r.spoke, "a"), "metadata", "labels")); diff != "" {
			t.Errorf("labels of the spoke after a local edit (-want +got)\n%s", diff)
		}

		r.update(r.spoke, "a", func(app m) { app["status"] = m{"health": m{"status": "Healthy"}} })
		pass(time.Millisecond)
		if got := at(r.get(r.hub, "a"), "status", "health", "status"); got != "Healthy" {
			t.Errorf("health on the hub is %v", got)
		}
		if s := r.stats(r.hub); !s.Agreed || s.Applications != 1 || len(s.Parked) != 0 {
			t.Errorf("Stats() = %+v", s)
		}

		r.remove(r.spoke, "a")
		pass(time.Second)
		if r.get(r.spoke, "a") == nil {
			t.Error("a plain local delete was not undone")
		}
		r.remove(r.hub, "a")
		pass(time.Second)
		if app := r.get(r.spoke, "a"); app != nil {
			t.Errorf("the spoke still holds %v", app)
		}
	})
}

func TestCascadeComesToAnEndOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.connect()
		r.create(r.hub, "a", m{"finalizers": []any{cascade}}, spec("one"))
		pass(time.Millisecond)
		if f := at(r.get(r.spoke, "a"), "metadata", "finalizers"); f != nil {
			t.Fatalf("the copy has finalizers %v before the deletion", f)
		}
		r.remove(r.hub, "a")
		pass(time.Second)
		meta, _ := at(r.get(r.spoke, "a"), "metadata").(m)
		if diff := cmp.Diff(any([]any{cascade}), meta["finalizers"]); diff != "" || meta["deletionTimestamp"] == nil {
			t.Fatalf("the copy is not being deleted with its workloads: %v", meta)
		}
		pass(10 * time.Minute) // Argo CD on the spoke takes its time
		if r.get(r.hub, "a") == nil {
			t.Fatal("the hub's object went before the workloads")
		}
		r.update(r.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		pass(time.Minute)
		if r.get(r.spoke, "a") != nil || r.get(r.hub, "a") != nil {
			t.Errorf("hub %v, spoke %v", r.get(r.hub, "a"), r.get(r.spoke, "a"))
		}
	})
}

func TestRefusalIsShownAndDelaysNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{spoke: memory.Config{MaxObjectBytes: 4096}})
		r.connect()
		r.create(r.hub, "large", nil, spec("small at first"))
		pass(time.Millisecond)
		r.update(r.hub, "large", func(app m) { app["spec"].(m)["source"].(m)["path"] = strings.Repeat("x", 4096) })
		for i := range 20 {
			r.create(r.hub, fmt.Sprint("small-", i), nil, spec("p"))
		}
		pass(time.Millisecond)
		for i := range 20 {
			if r.get(r.spoke, fmt.Sprint("small-", i)) == nil {
				t.Errorf("small-%d did not arrive", i)
			}
		}
		entry := stream.EntryKey{Collection: stream.Applications, Name: "large"}
		if got := r.stats(r.hub).Parked; len(got) != 1 || got[entry].Kind != stream.RefusalInvalid {
			t.Errorf("Parked = %v", got)
		}
		message := conditionOf(r.get(r.hub, "large"))
		if !strings.HasPrefix(message, "agent edge-1 did not apply it: the API server of the spoke refused it") {
			t.Errorf("condition %q", message)
		}
		if conditionOf(r.get(r.hub, "small-1")) != "" {
			t.Error("a condition on an object that was taken")
		}
		// Back to what the spoke holds: nothing is sent, and nothing is wrong any more.
		r.update(r.hub, "large", func(app m) { app["spec"].(m)["source"].(m)["path"] = "small at first" })
		pass(time.Millisecond)
		if got := conditionOf(r.get(r.hub, "large")); got != "" {
			t.Errorf("condition %q after the refused spec was taken back", got)
		}
		if s := r.stats(r.hub); len(s.Parked) != 0 || !s.Agreed {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// TestRefusalOfOursIsShown lets the hub's API server refuse what a spoke owns: there is
// no object on the hub that could say so.
func TestRefusalOfOursIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{mode: stream.Autonomous, hub: memory.Config{MaxObjectBytes: 4096}})
		r.connect()
		path := func(bytes int) m {
			return m{"spec": m{"project": "web", "destination": m{}, "source": m{"path": strings.Repeat("x", bytes)}}}
		}
		for _, name := range []string{"mended", "deleted"} {
			r.create(r.spoke, name, nil, path(4096))
		}
		pass(time.Second)
		got := r.stats(r.hub).Parked
		for _, name := range []string{"mended", "deleted"} {
			if got[stream.EntryKey{Collection: stream.Applications, Name: name}].Kind != stream.RefusalInvalid {
				t.Errorf("Parked = %v, without %s", got, name)
			}
		}
		r.update(r.spoke, "mended", func(app m) { app["spec"] = path(1)["spec"] })
		pass(time.Second)
		if got := r.stats(r.hub).Parked; len(got) != 1 {
			t.Errorf("Parked = %v after one was mended", got)
		}
		r.remove(r.spoke, "deleted")
		pass(time.Hour)
		if got := r.stats(r.hub).Parked; len(got) != 0 {
			t.Errorf("Parked = %v after the other was deleted", got)
		}
	})
}

// complete stands in for Argo CD's controller on the spoke.
func (r *pair) complete(name string) {
	r.t.Helper()
	r.update(r.spoke, name, func(app m) {
		app["status"] = m{"operationState": m{
			"operation": app["operation"], "phase": "Succeeded", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z",
		}}
		delete(app, "operation")
	})
}

func TestCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.create(r.hub, "a", nil, spec("one"))
		r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{"revision": "HEAD"}} })
		pass(time.Second)
		if got := at(r.get(r.hub, "a"), "status", "operationState", "message"); got != "waiting for agent edge-1" {
			t.Errorf("without a connection the command is shown as %q", got)
		}
		r.connect()
		pass(time.Second)
		if got := at(r.get(r.spoke, "a"), "operation", "sync", "revision"); got != "HEAD" {
			t.Fatalf("operation on the spoke: %v", r.get(r.spoke, "a"))
		}
		if got := at(r.get(r.hub, "a"), "status", "operationState", "message"); got != "sent to agent edge-1" {
			t.Errorf("on its way the command is shown as %q", got)
		}
		r.complete("a")
		pass(time.Second)
		app := r.get(r.hub, "a")
		if at(app, "operation") != nil || at(app, "status", "operationState", "phase") != "Succeeded" {
			t.Errorf("the hub after completion: %v", app)
		}
		if at(r.get(r.spoke, "a"), "operation") != nil {
			t.Error("the command was started again")
		}
		if s := r.stats(r.hub); !s.Agreed {
			t.Errorf("Stats() = %+v", s)
		}

		r.update(r.hub, "a", func(app m) { app["metadata"].(m)["annotations"] = m{"argocd.argoproj.io/refresh": "hard"} })
		pass(time.Second)
		refresh := func(e end) any { return at(r.get(e, "a"), "metadata", "annotations", "argocd.argoproj.io/refresh") }
		if refresh(r.spoke) != "hard" || refresh(r.hub) != "hard" {
			t.Errorf("refresh: spoke %v, hub %v", refresh(r.spoke), refresh(r.hub))
		}
		r.update(r.spoke, "a", func(app m) {
			delete(at(app, "metadata", "annotations").(m), "argocd.argoproj.io/refresh")
			app["status"].(m)["reconciledAt"] = "2026-01-01T00:00:02Z"
		})
		pass(time.Second)
		if refresh(r.spoke) != nil || refresh(r.hub) != nil {
			t.Errorf("refresh after it was consumed: spoke %v, hub %v", refresh(r.spoke), refresh(r.hub))
		}
	})
}

// TestCommandThatEndsUnseen lets a command run while the link is down, and the
// spoke's own operation after it: the hub must not wait for ever.
func TestCommandThatEndsUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{"revision": "HEAD"}} })
		pass(time.Second)
		cut()
		pass(time.Second)
		r.complete("a")
		r.update(r.spoke, "a", func(app m) {
			app["status"] = m{"operationState": m{
				"operation": m{"initiatedBy": m{"automated": true}}, "phase": "Running", "startedAt": "2026-01-01T00:01:00Z",
			}}
		})
		r.connect()
		pass(time.Second)
		app := r.get(r.hub, "a")
		if at(app, "operation") != nil || at(app, "status", "operationState", "operation", "initiatedBy", "automated") != true {
			t.Errorf("the hub shows operation %v, state %v", app["operation"], at(app, "status", "operationState"))
		}
	})
}

// TestCommandIsSentOnceTheSpokeReportsByItself is the case in which the spoke's
// API server stores the Application and its reply is lost: that it is there is
// told by a report that answers nothing.
func TestCommandIsSentOnceTheSpokeReportsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Int64
		r := newPair(t, options{spoke: memory.Config{Lag: true, LostReply: func(op memory.Op, _ stream.ResourceKey) error {
			if op == memory.OpCreate && lost.Add(1) == 1 {
				return stream.ErrUnavailable
			}
			return nil
		}}})
		r.spoke.store.Deliver(-1)
		r.create(r.hub, "a", nil, m{"spec": spec("one")["spec"], "operation": m{"sync": m{}}})
		r.connect()
		pass(100 * time.Millisecond) // the refusal is parked for half a second
		if lost.Load() == 0 {
			t.Fatal("no reply was lost")
		}
		if r.spoke.store.Deliver(-1) == 0 {
			t.Fatal("the Application was not stored")
		}
		pass(time.Minute)
		if at(r.get(r.spoke, "a"), "operation") == nil {
			t.Errorf("the command still waits: %v", at(r.get(r.hub, "a"), "status", "operationState", "message"))
		}
	})
}

func TestNewerConnectionTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		r := newPair(t, options{spoke: memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
			if op != memory.OpRead {
				writes.Add(1)
			}
			return nil
		}}})
		for i := range 30 {
			r.create(r.hub, fmt.Sprint("a-", i), nil, spec("one"))
		}
		_, first := r.connect()
		_, second := r.connect()
		pass(time.Minute)
		for range 2 {
			select {
			case err := <-first:
				if !errors.Is(err, session.ErrEnded) && !errors.Is(err, errEnded) {
					t.Errorf("the first Serve() = %v", err)
				}
			default:
				t.Fatal("the first connection still serves")
			}
		}
		if writes.Load() != 30 {
			t.Errorf("%d writes on the spoke, want one for each of 30 objects", writes.Load())
		}
		r.update(r.hub, "a-0", func(app m) { at(app, "spec", "source").(m)["path"] = "other" })
		pass(time.Second)
		if got := at(r.get(r.spoke, "a-0"), "spec", "source", "path"); got != "other" || writes.Load() != 31 {
			t.Errorf("after a change the spoke has %v, and %d writes", got, writes.Load())
		}
		select {
		case err := <-second:
			t.Errorf("the second Serve() = %v", err)
		default:
		}
	})
}

// TestPeerThatStopsReading lets a peer send heartbeats and read nothing. Serve
// ends all the same when it is told to. In between the loop rests: if it did
// not, virtual time would stand still.
func TestPeerThatStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.create(r.hub, "a", nil, spec("one"))
		ctx, cancel := context.WithCancel(t.Context())
		ended, end := context.WithCancel(t.Context())
		defer end()
		deaf := conn{in: make(chan stream.Message), out: make(chan stream.Message), ended: ended.Done()}
		served := make(chan error, 1)
		r.wait.Go(func() { served <- r.hub.Serve(ctx, mirror.Peer{Connection: "c"}, deaf) })
		for range 12 {
			deaf.in <- stream.Heartbeat{}
			pass(10 * time.Second)
		}
		select {
		case err := <-served:
			t.Fatalf("Serve() = %v while the peer is heard", err)
		default:
		}
		cancel()
		stopped := time.Now()
		err := <-served
		if took := time.Since(stopped); !errors.Is(err, session.ErrEnded) || took > 2*time.Second {
			t.Errorf("Serve() = %v after %s", err, took)
		}
	})
}

func TestSilentPeerIsTakenForGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mute := conn{in: make(chan stream.Message), out: make(chan stream.Message), ended: ctx.Done()}
		started := time.Now()
		err := r.hub.Serve(ctx, mirror.Peer{Connection: "c"}, mute)
		if took := time.Since(started); !errors.Is(err, session.ErrEnded) || took < 25*time.Second || took > 30*time.Second {
			t.Errorf("Serve() = %v after %s", err, took)
		}
	})
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.create(r.hub, "a", nil, spec("one"))
		r.hub.Pause(true)
		r.connect()
		pass(time.Minute)
		if app := r.get(r.spoke, "a"); app != nil {
			t.Fatalf("held, the hub sent %v", app)
		}
		if r.stats(r.hub).Agreed {
			t.Error("held, the hub claims to agree")
		}
		r.hub.Pause(false)
		pass(time.Millisecond)
		if r.get(r.spoke, "a") == nil {
			t.Fatal("resumed, the hub sent nothing")
		}
		r.hub.Pause(true)
		r.update(r.spoke, "a", func(app m) { app["status"] = m{"health": m{"status": "Healthy"}} })
		pass(time.Millisecond)
		if got := at(r.get(r.hub, "a"), "status", "health", "status"); got != "Healthy" {
			t.Errorf("held, the hub does not take a status: %v", got)
		}
	})
}

// TestNothingIsRememberedOfObjectsThatAreGone lets objects live through all that
// a loop remembers something of: refusals, commands, refreshs, failed upkeep,
// with and without a connection.
func TestNothingIsRememberedOfObjectsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faulty atomic.Bool
		r := newPair(t, options{
			spoke: memory.Config{MaxObjectBytes: 4096},
			hub: memory.Config{Fault: func(op memory.Op, key stream.ResourceKey) error {
				if faulty.Load() && op == memory.OpUpdate && key.Name == "failing" {
					return stream.ErrUnavailable
				}
				return nil
			}},
		})
		names := []string{"plain", "large", "commanded", "waiting", "refreshed", "left", "failing"}
		cut, _ := r.connect()
		for _, name := range names {
			meta := m{}
			if name == "left" {
				meta["finalizers"] = []any{cascade}
			}
			r.create(r.hub, name, meta, spec("one"))
		}
		pass(time.Second)
		faulty.Store(true)
		r.update(r.hub, "large", func(app m) { app["spec"].(m)["source"].(m)["path"] = strings.Repeat("x", 4096) })
		r.update(r.hub, "commanded", func(app m) { app["operation"] = m{"sync": m{}} })
		r.update(r.hub, "refreshed", func(app m) { app["metadata"].(m)["annotations"] = m{"argocd.argoproj.io/refresh": "hard"} })
		pass(time.Second)
		r.complete("commanded")
		r.remove(r.hub, "left")
		pass(time.Second)
		r.update(r.spoke, "left", func(app m) { delete(app["metadata"].(m), "finalizers") })
		pass(time.Minute)
		cut()
		pass(time.Second)
		faulty.Store(false)
		r.update(r.hub, "failing", func(app m) { app["operation"] = m{"sync": m{}} })
		faulty.Store(true)
		r.update(r.hub, "waiting", func(app m) { app["operation"] = m{"sync": m{}} })
		r.create(r.hub, "never-sent", nil, spec("one"))
		pass(time.Second)
		some, err := r.hub.Sizes(r.ctx)
		if err != nil || len(some) == 0 {
			t.Fatalf("Sizes() = %v, %v: the test shows nothing", some, err)
		}
		for _, name := range append(slices.DeleteFunc(names, func(n string) bool { return n == "left" }), "never-sent") {
			r.remove(r.hub, name)
		}
		pass(time.Second)
		r.connect()
		pass(5 * time.Minute)
		for _, e := range []end{r.hub, r.spoke} {
			if left := e.store.List(stream.Application, ""); len(left) != 0 {
				t.Errorf("%s holds %d objects", e.namespace, len(left))
			}
			sizes, err := e.Sizes(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]int{}, sizes); diff != "" {
				t.Errorf("in %s the loop remembers (-want +got)\n%s", e.namespace, diff)
			}
		}
	})
}

// TestUpkeepThatFailsIsTriedAgainLater counts the calls of five minutes in which
// the hub's API server takes no update.
func TestUpkeepThatFailsIsTriedAgainLater(t *testing.T) {
	for name, failure := range map[string]error{
		"the API server is away": stream.ErrUnavailable,
		"it refuses":             stream.ErrRefused,
		"it is always a conflict; each try has five attempts": stream.ErrConflict,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failing atomic.Bool
				var calls atomic.Int64
				r := newPair(t, options{hub: memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
					if op != memory.OpUpdate || !failing.Load() {
						return nil
					}
					calls.Add(1)
					return failure
				}}})
				failing.Store(true)
				r.create(r.hub, "a", nil, m{"spec": spec("one")["spec"], "operation": m{"sync": m{}}})
				pass(5 * time.Minute)
				// At 0, 1, 3, 7, 15, 31 s, and then every 30 s.
				tries := int64(14)
				if errors.Is(failure, stream.ErrConflict) {
					tries *= 5
				}
				if got := calls.Load(); got != tries {
					t.Errorf("%d calls in five minutes, want %d", got, tries)
				}
				failing.Store(false)
				pass(30 * time.Second)
				if got := at(r.get(r.hub, "a"), "status", "operationState", "message"); got != "waiting for agent edge-1" {
					t.Errorf("once it works again the command is shown as %v", got)
				}
			})
		})
	}
}

// TestStartLooksAtTheStore: what is in the cache is known before the first
// connection, even if the store tells of nothing; else a restarted principal
// would have the spoke release all.
func TestStartLooksAtTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(func(stream.ResourceKey)) func() { return func() {} }
		app := text(t, m{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": m{"name": "a", "namespace": "edge-1"}, "spec": spec("one")["spec"],
		})
		r := newPair(t, options{subscribe: silent, before: func(hub, _ *memory.Store) {
			if _, err := hub.Create(t.Context(), end{namespace: "edge-1"}.key("a"), app); err != nil {
				t.Fatal(err)
			}
		}})
		if got := r.stats(r.hub).Applications; got != 1 {
			t.Errorf("Applications = %d before the first connection", got)
		}
		r.connect()
		pass(time.Second)
		if r.get(r.spoke, "a") == nil {
			t.Error("the Application did not arrive")
		}
	})
}

func TestAutonomousMirrorIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{mode: stream.Autonomous})
		r.connect()
		r.create(r.spoke, "a", m{"finalizers": []any{cascade}}, m{"spec": m{"project": "web", "destination": m{"server": "https://kubernetes.default.svc"}}})
		pass(time.Second)
		want := any(m{"project": "edge-1-web", "destination": m{"name": "edge-1"}})
		if diff := cmp.Diff(want, at(r.get(r.hub, "a"), "spec")); diff != "" {
			t.Fatalf("the mirror on the hub (-want +got)\n%s", diff)
		}
		uid := at(r.get(r.hub, "a"), "metadata", "uid")
		r.update(r.hub, "a", func(app m) { app["metadata"].(m)["finalizers"] = []any{cascade} })
		r.remove(r.hub, "a")
		pass(time.Minute)
		again := r.get(r.hub, "a")
		if again == nil || at(again, "metadata", "uid") == uid || at(again, "metadata", "deletionTimestamp") != nil {
			t.Errorf("a deleted mirror was not made anew: %v", again)
		}
		if at(r.get(r.spoke, "a"), "metadata", "deletionTimestamp") != nil {
			t.Error("the original is being deleted")
		}
	})
}

func TestServeAfterTheEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, served := r.connect()
		defer cut()
		r.cancel(nil)
		for range 2 {
			if err := <-served; !errors.Is(err, session.ErrEnded) && !errors.Is(err, errEnded) {
				t.Errorf("Serve() = %v", err)
			}
		}
		r.wait.Wait()
		if err := r.hub.Serve(t.Context(), mirror.Peer{}, conn{}); !errors.Is(err, session.ErrEnded) {
			t.Errorf("Serve() after the end = %v", err)
		}
		if _, err := r.hub.Stats(t.Context()); err == nil {
			t.Error("Stats() after the end has no error")
		}
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	for name, cfg := range map[string]mirror.Config{
		"nothing":               {},
		"rules without a store": {Rules: ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Namespace: "argocd"}}}},
	} {
		if _, err := mirror.New(cfg); err == nil {
			t.Errorf("New() takes a config of %s", name)
		}
	}
}
