package mirror_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

// knowing is the schema of a kind that knows these paths, of which the last part of
// each is kept with all below it.
func knowing(t *testing.T, paths ...string) *schema.Schema {
	t.Helper()
	root := m{"type": "object"}
	for _, path := range append(paths, "operation.initiatedBy", "operation.info", "operation.sync.revision", "status") {
		at := root
		for name := range strings.SplitSeq(path, ".") {
			properties, _ := at["properties"].(m)
			if properties == nil {
				properties = m{}
				at["properties"] = properties
			}
			next, _ := properties[name].(m)
			if next == nil {
				next = m{}
				properties[name] = next
			}
			at = next
		}
		at["x-kubernetes-preserve-unknown-fields"] = true
	}
	s, err := schema.Parse(text(t, m{"spec": m{"versions": []any{m{"name": "v1alpha1", "schema": m{"openAPIV3Schema": root}}}}}), "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	oldApplication = []string{"spec.project", "spec.destination", "spec.source.path", "spec.syncPolicy.automated.prune", "spec.syncPolicy.syncOptions"}
	newApplication = append([]string{"spec.source.tagPrefix", "spec.syncPolicy.automated.enabled", "operation.sync.source"}, oldApplication...)
	oldProject     = []string{"spec.destinations", "spec.sourceRepos", "spec.sourceNamespaces", "spec.description"}
	newProject     = append([]string{"spec.sourceIntegrity"}, oldProject...)
)

func older(t *testing.T) memory.Config {
	t.Helper()
	return memory.Config{Schemas: map[stream.Kind]*schema.Schema{
		stream.Application: knowing(t, oldApplication...), stream.AppProject: knowing(t, oldProject...),
	}}
}

// upgrade gives a side the definitions of a newer Argo CD.
func upgrade(t *testing.T, store *memory.Store) {
	t.Helper()
	store.SetSchema(stream.Application, knowing(t, newApplication...))
	store.SetSchema(stream.AppProject, knowing(t, newProject...))
}

// soon is how long it takes at most until what waits is tried again: the shortest
// pause of a refused entry, and a quarter more.
const soon = 7 * time.Second

func appEntry(name string) stream.EntryKey {
	return stream.EntryKey{Collection: stream.Applications, Name: name}
}

// The hub has auto-sync off by a field that an older Argo CD does not have: what is
// left without it would be auto-sync with prune.
func TestRestraintIsNotDropped(t *testing.T) {
	for name, tt := range map[string]struct {
		syncPolicy m
		path       string
	}{
		"off":              {m{"automated": m{"enabled": false, "prune": true}}, "spec.syncPolicy.automated.enabled"},
		"a branch of it":   {m{"automated": m{"prune": true, "window": m{"x": "y"}}}, "spec.syncPolicy.automated.window"},
		"an empty one":     {m{"automated": m{"prune": true, "window": ""}}, "spec.syncPolicy.automated.window"},
		"null":             {m{"automated": m{"prune": true, "window": nil}}, "spec.syncPolicy.automated.window"},
		"everything of it": {m{"automated": m{"enabled": false}}, "spec.syncPolicy.automated.enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{spoke: older(t)})
				r.connect()
				r.create(r.hub, "a", nil, spec("one"))
				pass(time.Second)
				r.update(r.hub, "a", func(app m) { app["spec"].(m)["syncPolicy"] = tt.syncPolicy })
				r.create(r.hub, "b", nil, m{"spec": m{"project": "default", "destination": m{"name": "edge-1"}, "syncPolicy": tt.syncPolicy}})
				pass(10 * time.Minute)
				if got := at(r.get(r.spoke, "a"), "spec", "syncPolicy"); got != nil || r.get(r.spoke, "b") != nil {
					t.Errorf("the spoke has the rest: %v, %v", got, r.get(r.spoke, "b"))
				}
				for _, app := range []string{"a", "b"} {
					if message := conditionOf(r.get(r.hub, app)); !strings.Contains(message, "does not know "+tt.path+",") {
						t.Errorf("the hub says of %s: %q", app, message)
					}
					if got := r.stats(r.hub).Parked[appEntry(app)]; got.Kind != stream.RefusalInvalid || !strings.Contains(got.Message, tt.path) {
						t.Errorf("parked is %s as %+v", app, got)
					}
				}
				next := knowing(t, append(newApplication, "spec.syncPolicy.automated.window")...)
				r.spoke.store.SetSchema(stream.Application, next)
				pass(soon)
				for _, app := range []string{"a", "b"} {
					if diff := cmp.Diff(any(tt.syncPolicy), at(r.get(r.spoke, app), "spec", "syncPolicy")); diff != "" {
						t.Errorf("after the upgrade %s (-hub +spoke):\n%s", app, diff)
					}
				}
				if s := r.stats(r.hub); !s.Agreed || len(s.Parked) > 0 || conditionOf(r.get(r.hub, "a")) != "" {
					t.Errorf("after the upgrade the hub says %+v, %q", s, conditionOf(r.get(r.hub, "a")))
				}
			})
		})
	}
}

// tagged is an Application with a field that an older Argo CD does not have.
func tagged(path string) m {
	app := spec(path)
	app["spec"].(m)["source"].(m)["tagPrefix"] = "v"
	return app
}

func TestWhatIsNoRestraintIsAppliedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{spoke: older(t)})
		r.connect()
		r.create(r.hub, "a", nil, tagged("one"))
		pass(time.Second)
		shows := func(moment string) {
			t.Helper()
			if got := at(r.get(r.spoke, "a"), "spec", "source"); !cmp.Equal(got, any(m{"path": "one"})) {
				t.Errorf("%s the spoke has %v", moment, got)
			}
			const want = "agent edge-1 applied it without what the API server there does not know, since its Argo CD is older: spec.source.tagPrefix"
			if got := messageOf(r.get(r.hub, "a"), "ArgomeshWarning"); got != want {
				t.Errorf("%s the hub says %q, want %q", moment, got, want)
			}
			s := r.stats(r.hub)
			if !s.Agreed || len(s.Parked) > 0 || !cmp.Equal(s.Dropped, map[stream.EntryKey][]string{appEntry("a"): {"spec.source.tagPrefix"}}) {
				t.Errorf("%s the hub has %+v", moment, s)
			}
		}
		shows("at first")

		// A status comes and goes beside the warning.
		r.update(r.spoke, "a", func(app m) { app["status"] = m{"health": m{"status": "Healthy"}} })
		pass(time.Second)
		shows("with a status")

		// Both processes are new, and each has forgotten.
		hub, spoke := r.get(r.hub, "a"), r.get(r.spoke, "a")
		r.cancel(nil)
		r.wait.Wait()
		r = newPair(t, options{stores: [2]*memory.Store{r.hub.store.Open(), r.spoke.store.Open()}})
		pass(time.Minute)
		if got := messageOf(r.get(r.hub, "a"), "ArgomeshWarning"); got == "" {
			t.Error("a process that has heard nothing removes the warning")
		}
		r.connect()
		pass(time.Minute)
		shows("after a restart")
		if diff := cmp.Diff(hub, r.get(r.hub, "a")) + cmp.Diff(spoke, r.get(r.spoke, "a")); diff != "" {
			t.Errorf("a restart writes:\n%s", diff)
		}

		upgrade(t, r.spoke.store)
		pass(soon)
		if got := at(r.get(r.spoke, "a"), "spec", "source"); !cmp.Equal(got, any(m{"path": "one", "tagPrefix": "v"})) {
			t.Errorf("after the upgrade the spoke has %v", got)
		}
		if s := r.stats(r.hub); !s.Agreed || len(s.Dropped) > 0 || messageOf(r.get(r.hub, "a"), "ArgomeshWarning") != "" {
			t.Errorf("after the upgrade the hub says %+v, %q", s, messageOf(r.get(r.hub, "a"), "ArgomeshWarning"))
		}
	})
}

// What is no longer so while no one is connected is gone once that is heard.
func TestWarningThatIsOverIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{spoke: older(t)})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, tagged("one"))
		pass(time.Second)
		r.cancel(nil)
		r.wait.Wait()
		cut()
		hub, spoke := r.hub.store.Open(), r.spoke.store.Open()
		upgrade(t, spoke)
		if err := spoke.Delete(t.Context(), r.spoke.key("a"), backends.Preconditions{}); err != nil {
			t.Fatal(err)
		}
		r = newPair(t, options{stores: [2]*memory.Store{hub, spoke}})
		r.connect()
		pass(15 * time.Second)
		if got := messageOf(r.get(r.hub, "a"), "ArgomeshWarning"); got != "" || !r.stats(r.hub).Agreed {
			t.Errorf("the hub says %q and %+v", got, r.stats(r.hub))
		}
	})
}

func TestAppProjectIsWholeOrRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{spoke: older(t)})
		r.connect()
		project := func(name string, integrity any) {
			r.put(r.hub, stream.AppProject, name, nil, m{"spec": m{
				"sourceNamespaces": []any{"edge-1"}, "destinations": []any{m{"name": "edge-1", "namespace": "*"}}, "sourceIntegrity": integrity,
			}})
		}
		project("web", m{"git": m{"policies": []any{m{}}}})
		project("empty", m{})
		pass(10 * time.Minute)
		entry := func(name string) stream.EntryKey {
			return stream.EntryKey{Collection: stream.AppProjects, Name: name}
		}
		s := r.stats(r.hub)
		if got := s.Parked[entry("web")]; got.Kind != stream.RefusalInvalid || !strings.Contains(got.Message, "does not know spec.sourceIntegrity,") || len(s.Parked) != 1 {
			t.Errorf("parked are %+v", s.Parked)
		}
		if want := map[stream.EntryKey][]string{entry("empty"): {"spec.sourceIntegrity"}}; !cmp.Equal(want, s.Dropped) {
			t.Errorf("dropped are %v, want %v", s.Dropped, want)
		}
		has := func() []string {
			var names []string
			for _, o := range r.spoke.store.List(stream.AppProject, "argocd") {
				names = append(names, o.Key.Name)
			}
			return slices.Sorted(slices.Values(names))
		}
		if got := has(); !slices.Equal(got, []string{"empty"}) {
			t.Errorf("the spoke has the projects %q", got)
		}
		upgrade(t, r.spoke.store)
		pass(soon)
		if s := r.stats(r.hub); !slices.Equal(has(), []string{"empty", "web"}) || len(s.Parked)+len(s.Dropped) > 0 {
			t.Errorf("after the upgrade the spoke has the projects %q, and the hub says %+v", has(), s)
		}
	})
}

// What an autonomous agent shows of its own does not tell of more than there is: the
// mirror of an Application with auto-sync off would show it on.
func TestOlderHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{mode: stream.Autonomous, hub: older(t)})
		r.connect()
		off := spec("one")
		off["spec"].(m)["syncPolicy"] = m{"automated": m{"enabled": false, "prune": true}}
		r.create(r.spoke, "off", nil, off)
		r.create(r.spoke, "tagged", nil, tagged("one"))
		pass(time.Minute)
		s := r.stats(r.hub)
		if got := s.Parked[appEntry("off")]; r.get(r.hub, "off") != nil || !strings.Contains(got.Message, "the API server of the hub does not know spec.syncPolicy.automated.enabled") {
			t.Errorf("the mirror is %v, parked are %+v", r.get(r.hub, "off"), s.Parked)
		}
		const want = "shown without what the API server there does not know, since its Argo CD is older: spec.source.tagPrefix"
		if got := messageOf(r.get(r.hub, "tagged"), "ArgomeshWarning"); got != want {
			t.Errorf("the mirror says %q, want %q", got, want)
		}
		if want := map[stream.EntryKey][]string{appEntry("tagged"): {"spec.source.tagPrefix"}}; !cmp.Equal(want, s.Dropped) || !cmp.Equal(want, r.stats(r.spoke).Dropped) {
			t.Errorf("hub %v, spoke %v, want %v", s.Dropped, r.stats(r.spoke).Dropped, want)
		}
		upgrade(t, r.hub.store)
		pass(soon)
		if s := r.stats(r.hub); r.get(r.hub, "off") == nil || messageOf(r.get(r.hub, "tagged"), "ArgomeshWarning") != "" || len(s.Parked)+len(s.Dropped) > 0 {
			t.Errorf("after the upgrade: %v, %v, %+v", r.get(r.hub, "off"), r.get(r.hub, "tagged"), s)
		}
	})
}

// So are the child applications of a managed agent, with their status.
func TestOlderHubShowsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := memory.Config{Schemas: map[stream.Kind]*schema.Schema{stream.Application: knowing(t, oldApplication...)}}
		r := newPair(t, options{hub: cfg, children: true})
		r.connect()
		child, off := tagged("one"), tagged("two")
		off["spec"].(m)["syncPolicy"] = m{"automated": m{"enabled": false}}
		r.create(r.spoke, "child", nil, child)
		r.create(r.spoke, "off", nil, off)
		pass(time.Minute)
		key := stream.EntryKey{Collection: stream.Children, Name: "child"}
		s := r.stats(r.hub)
		if got := at(r.get(r.hub, "child"), "spec", "source"); !cmp.Equal(got, any(m{"path": "one"})) || !cmp.Equal(s.Dropped[key], []string{"spec.source.tagPrefix"}) {
			t.Errorf("the mirror has %v, dropped are %v", got, s.Dropped)
		}
		key.Name = "off"
		if r.get(r.hub, "off") != nil || s.Parked[key].Kind != stream.RefusalInvalid {
			t.Errorf("the mirror is %v, parked are %v", r.get(r.hub, "off"), s.Parked)
		}
	})
}

// An operation is run as it is given, or not at all.
func TestOperationIsNotShortened(t *testing.T) {
	for name, tt := range map[string]struct {
		source m
		phase  string
	}{
		"with what is not known":   {m{"tagPrefix": "v"}, "Error"},
		"with what is empty of it": {m{}, "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{spoke: older(t)})
				r.connect()
				r.create(r.hub, "a", nil, spec("one"))
				pass(time.Minute)
				r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{"revision": "abc", "source": tt.source}} })
				pass(time.Minute)
				hub, spoke := r.get(r.hub, "a"), r.get(r.spoke, "a")
				if got := at(hub, "status", "operationState", "phase"); got != tt.phase {
					t.Errorf("the operation is %v: %v", got, at(hub, "status", "operationState", "message"))
				}
				message, _ := at(hub, "status", "operationState", "message").(string)
				if tt.phase == "Error" && (!strings.Contains(message, "operation.sync.source") || spoke["operation"] != nil) {
					t.Errorf("the hub says %q, the spoke has %v", message, spoke["operation"])
				}
				if tt.phase == "Running" && at(spoke, "operation", "sync", "revision") != "abc" {
					t.Errorf("the spoke has %v", spoke["operation"])
				}
			})
		})
	}
}

// Where the definitions may not be read, what an API server would drop is refused,
// whatever it is, and all else is as ever; with the right it is tried again soon.
func TestUnknownSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := &readable{}
		r := newPair(t, options{spoke: older(t), configure: func(side stream.Side, cfg *mirror.Config) {
			if store, ok := cfg.Store.(*memory.Store); ok && side == stream.Spoke {
				reads.Store = store
				cfg.Schemas = reads
			}
		}})
		r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		r.create(r.hub, "b", nil, tagged("one"))
		pass(10 * time.Minute)
		if r.get(r.spoke, "a") == nil || r.get(r.spoke, "b") != nil {
			t.Errorf("the spoke has %v, %v", r.get(r.spoke, "a"), r.get(r.spoke, "b"))
		}
		message := conditionOf(r.get(r.hub, "b"))
		for _, part := range []string{"spec.source.tagPrefix", "list and watch of customresourcedefinitions"} {
			if !strings.Contains(message, part) {
				t.Errorf("the hub says %q, without %q", message, part)
			}
		}
		reads.grant()
		pass(soon)
		if got := at(r.get(r.spoke, "b"), "spec", "source"); !cmp.Equal(got, any(m{"path": "one"})) || messageOf(r.get(r.hub, "b"), "ArgomeshWarning") == "" {
			t.Errorf("with the right, the spoke has %v, and the hub says %v", got, at(r.get(r.hub, "b"), "status"))
		}
	})
}

// readable is a spoke whose definitions may be read once that is granted.
type readable struct {
	*memory.Store
	granted bool
	changed func()
}

func (r *readable) Schema(kind stream.Kind) *schema.Schema {
	if !r.granted {
		return nil
	}
	return r.Store.Schema(kind)
}

func (r *readable) SubscribeSchemas(changed func()) (cancel func()) {
	r.changed = changed
	return r.Store.SubscribeSchemas(changed)
}

func (r *readable) grant() {
	r.granted = true
	r.changed()
}

// An original whose API server becomes older in the midst of a write keeps its
// resourceVersion and says less, which reaches its mirror.
func TestOriginalIsShortenedDuringAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *pair
		armed := false
		r = newPair(t, options{mode: stream.Autonomous, spoke: memory.Config{
			Schemas: map[stream.Kind]*schema.Schema{stream.Application: knowing(t, newApplication...), stream.AppProject: knowing(t, newProject...)},
			Fault: func(op memory.Op, key stream.ResourceKey) error {
				if armed && op == memory.OpUpdate && key.Name == "a" {
					armed = false
					r.spoke.store.SetSchema(stream.Application, knowing(t, oldApplication...))
					<-time.After(time.Second) // the link learns of it
				}
				return nil
			},
		}})
		r.connect()
		r.create(r.spoke, "a", nil, tagged("one"))
		pass(time.Minute)
		if got := at(r.get(r.hub, "a"), "spec", "source", "tagPrefix"); got != "v" {
			t.Fatalf("the mirror has tagPrefix %v", got)
		}
		armed = true
		r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{"revision": "abc"}} })
		pass(time.Minute)
		if got := at(r.get(r.hub, "a"), "spec", "source", "tagPrefix"); armed || got != nil {
			t.Errorf("a write came: %t; the mirror has tagPrefix %v, which its original has not", !armed, got)
		}
	})
}

// Definitions of the spoke that become others again and again, as in an upgrade, have a copy
// written again each time. No one changes it back, and no one is told so.
func TestDefinitionsThatChangeAreNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{spoke: older(t)})
		r.connect()
		r.create(r.hub, "a", nil, tagged("one"))
		pass(time.Second)
		fought := func() string {
			return messageOf(r.get(r.hub, "a"), "ArgomeshError") + messageOf(r.get(r.spoke, "a"), "ArgomeshError")
		}
		for i := range 6 {
			r.spoke.store.SetSchema(stream.Application, knowing(t, append(oldApplication, fmt.Sprint("spec.new", i))...))
			pass(time.Second)
			if got := fought(); got != "" || !r.stats(r.hub).Agreed {
				t.Fatalf("after %d changes of the definition it is said: %q, %+v", i+1, got, r.stats(r.hub))
			}
		}
	})
}

// After an upgrade of the spoke's definitions its API server may go on for a while to show
// what is written without what the definition of before does not know, at the very revision
// that it answered to the write. No one changes that back.
func TestWhatOlderWatchesShowIsNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		r := newPair(t, options{spoke: memory.Config{
			Lag: true, Schemas: older(t).Schemas,
			Journal: func(a memory.Accepted) {
				if a.Op == memory.OpUpdate && a.Object.Key.Name == "a" {
					writes++
				}
			},
		}, before: func(_, spoke *memory.Store) { spoke.Deliver(-1) }})
		goOn := func(d time.Duration) {
			for range d / time.Second {
				r.spoke.store.Deliver(-1)
				pass(time.Second)
			}
		}
		fought := func() string {
			return messageOf(r.get(r.hub, "a"), "ArgomeshError") + messageOf(r.get(r.spoke, "a"), "ArgomeshError")
		}
		r.connect()
		r.create(r.hub, "a", nil, tagged("one"))
		goOn(5 * time.Second)
		if got := at(r.get(r.spoke, "a"), "spec", "source", "tagPrefix"); got != nil {
			t.Fatalf("the copy has tagPrefix %v", got)
		}

		r.spoke.store.ShowBy(stream.Application, knowing(t, oldApplication...))
		writes = 0
		upgrade(t, r.spoke.store)
		goOn(20 * time.Second)
		if got := fought(); got != "" || !r.stats(r.hub).Agreed || writes > 2 {
			t.Errorf("after %d writes it is said: %q, %+v", writes, got, r.stats(r.hub))
		}
		r.update(r.spoke, "a", func(app m) { at(app, "metadata").(m)["labels"] = m{"own": "label"} })
		goOn(20 * time.Second) // the whole copy is shown without what the definition of before does not know
		if got := fought(); got != "" || !r.stats(r.hub).Agreed || writes > 4 {
			t.Errorf("after %d writes and one of another it is said: %q, %+v", writes, got, r.stats(r.hub))
		}
		if got := at(r.get(r.spoke, "a"), "spec", "source", "tagPrefix"); got != "v" {
			t.Errorf("the copy has tagPrefix %v", got)
		}

		r.spoke.store.ShowBy(stream.Application, nil)
		for range 4 {
			r.update(r.spoke, "a", func(app m) { delete(at(app, "spec", "source").(m), "tagPrefix") })
			goOn(2 * time.Second)
		}
		if got, want := fought(), "another writer on the spoke changes it back: spec.source.tagPrefix"; !strings.Contains(got, want) {
			t.Errorf("a fight is told as %q, want %q", got, want)
		}
	})
}
