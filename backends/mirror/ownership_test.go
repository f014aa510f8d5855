package mirror_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

const mismatchPolicy = "argocd.argoproj.io/source-uid-mismatch-policy"

// TestRecreatedUnderTheSameName lets the owner's object be replaced while the link
// is down, in both modes and under both policies. No copy is ever deleted together
// with its workloads.
func TestRecreatedUnderTheSameName(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		for policy, anew := range map[string]bool{"": false, "upsert": false, "recreate": true} {
			t.Run(mode.String()+" "+policy, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newPair(t, options{mode: mode})
					owner, other := r.hub, r.spoke
					if mode == stream.Autonomous {
						owner, other = r.spoke, r.hub
					}
					cascades := watchCascades(t, other.store)
					cut, _ := r.connect()
					r.create(owner, "a", nil, spec("one"))
					pass(time.Second)
					r.update(other, "a", func(app m) {
						app["metadata"].(m)["labels"] = m{"mine": "x"}
						app["status"] = m{"history": []any{m{"id": 1}}}
					})
					pass(time.Second)
					before := at(r.get(other, "a"), "metadata", "uid")
					cut()
					r.remove(owner, "a")
					meta := m{}
					if policy != "" {
						meta["annotations"] = m{mismatchPolicy: policy}
					}
					r.create(owner, "a", meta, spec("two"))
					r.connect()
					pass(time.Minute)
					app := r.get(other, "a")
					if got := at(app, "spec", "source", "path"); got != "two" {
						t.Fatalf("the copy has path %v", got)
					}
					if got := at(app, "metadata", "annotations", "argocd.argoproj.io/source-uid"); got != at(r.get(owner, "a"), "metadata", "uid") {
						t.Errorf("the copy is of %v", got)
					}
					if (at(app, "metadata", "uid") != before) != anew {
						t.Errorf("the copy had UID %v, and has %v", before, at(app, "metadata", "uid"))
					}
					if (at(app, "metadata", "labels", "mine") == nil) != anew {
						t.Errorf("the copy has labels %v", at(app, "metadata", "labels"))
					}
					if cascades() != 0 {
						t.Error("a copy was deleted together with its workloads")
					}
					if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed {
						t.Errorf("hub %+v, spoke %+v", h, s)
					}
				})
			})
		}
	}
}

// watchCascades counts the objects that a store shows as being deleted with a
// cascade finalizer.
func watchCascades(t *testing.T, store *memory.Store) (count func() int) {
	t.Helper()
	seen := map[any]bool{}
	t.Cleanup(store.Subscribe(func(key stream.ResourceKey) {
		if o, ok := store.Get(key); ok {
			meta, _ := at(parse(t, o), "metadata").(m)
			finalizers, _ := meta["finalizers"].([]any)
			if meta["deletionTimestamp"] != nil && slices.Contains(finalizers, any(cascade)) {
				seen[meta["uid"]] = true
			}
		}
	}))
	return func() int { return len(seen) }
}

// TestOwnership lets people on both sides do what they do, to both kinds and in
// both modes: the owner's side wins, key by key, and nothing else is touched.
func TestOwnership(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
			t.Run(mode.String()+" "+string(kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newPair(t, options{mode: mode})
					owner, other := r.hub, r.spoke
					name := "p"
					if mode == stream.Autonomous {
						owner, other = r.spoke, r.hub
						if kind == stream.AppProject {
							name = "edge-1-p"
						}
					}
					cascades := watchCascades(t, other.store)
					here := stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: "p"}
					there := stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: name}
					content := m{"sourceNamespaces": []any{"*"}, "destinations": []any{m{"name": "*", "namespace": "*"}}, "description": "one"}
					changing := "description"
					if kind == stream.Application {
						here.Namespace, there.Namespace = owner.namespace, other.namespace
						content, changing = m{"project": "default", "revisionHistoryLimit": "one", "destination": m{"name": "edge-1"}}, "revisionHistoryLimit"
					}
					r.connect()
					o := thing{r, owner.store, here}
					copied := thing{r, other.store, there}
					o.create(m{"labels": m{"team": "a", "tier": "1"}, "annotations": m{"note": "x"}}, content)
					pass(time.Second)
					written := copied.field("spec", changing)
					if copied.get() == nil || copied.field("metadata", "labels", "team") != "a" {
						t.Fatalf("the copy is %v", copied.get())
					}

					copied.update(func(fields m) {
						meta := fields["metadata"].(m)
						meta["labels"] = m{"team": "b", "mine": "m"} // tier is gone
						meta["annotations"].(m)["note"] = "y"
						meta["finalizers"] = []any{cascade, "example.org/theirs"}
						fields["spec"].(m)[changing] = "theirs"
					})
					pass(time.Minute)
					if diff := cmp.Diff(any(m{"team": "a", "tier": "1", "mine": "m"}), copied.field("metadata", "labels")); diff != "" {
						t.Errorf("labels of an edited copy (-want +got)\n%s", diff)
					}
					if copied.field("metadata", "annotations", "note") != "x" || copied.field("spec", changing) != written {
						t.Errorf("an edited copy: %v", copied.get())
					}
					if diff := cmp.Diff(any([]any{"example.org/theirs"}), copied.field("metadata", "finalizers")); diff != "" {
						t.Errorf("finalizers of an edited copy (-want +got)\n%s", diff)
					}

					o.update(func(fields m) { fields["metadata"].(m)["labels"] = m{"tier": "2"} })
					pass(time.Second)
					if diff := cmp.Diff(any(m{"tier": "2", "mine": "m"}), copied.field("metadata", "labels")); diff != "" {
						t.Errorf("labels after the owner took one away (-want +got)\n%s", diff)
					}

					pass(10 * time.Minute)
					copied.update(func(fields m) { delete(fields["metadata"].(m), "finalizers") })
					pass(time.Second)
					uid := copied.field("metadata", "uid")
					copied.remove()
					pass(time.Minute)
					if got := copied.field("metadata", "uid"); got == nil || got == uid {
						t.Errorf("a deleted copy is not made anew: %v", copied.get())
					}
					if o.field("metadata", "deletionTimestamp") != nil || o.field("metadata", "annotations", source) != nil {
						t.Errorf("the owner's object was touched: %v", o.get())
					}

					o.remove()
					pass(time.Minute)
					if copied.get() != nil {
						t.Errorf("a copy is left of what is gone: %v", copied.get())
					}
					if cascades() != 0 {
						t.Error("a copy was deleted together with its workloads")
					}
					if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed {
						t.Errorf("hub %+v, spoke %+v", h, s)
					}
				})
			})
		}
	}
}

// TestDeletedOnTheSpokeWithItsWorkloads: that is the act of the spoke's owner. It is
// told to the hub, and the Application comes back.
func TestDeletedOnTheSpokeWithItsWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		cut() // so that it is one act
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) { app["metadata"].(m)["finalizers"] = []any{cascade} })
		r.remove(r.spoke, "a")
		r.connect()
		pass(time.Minute)
		if at(r.get(r.spoke, "a"), "metadata", "finalizers") == nil {
			t.Error("the spoke's owner does not get his way")
		}
		want := stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: "someone on the spoke deletes the Application together with its workloads; it is created again when it is gone",
		}
		if got := r.stats(r.hub).Parked[stream.EntryKey{Collection: stream.Applications, Name: "a"}]; got != want {
			t.Errorf("parked is %+v", got)
		}
		r.update(r.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		pass(20 * time.Second)
		if app := r.get(r.spoke, "a"); app == nil || at(app, "metadata", "deletionTimestamp") != nil {
			t.Errorf("it does not come back: %v", app)
		}
	})
}

// TestAdoption: what was on a managed spoke before the hub sent it is taken over in
// place where its owner allows that, without the finalizer that would let a delete
// cascade.
func TestAdoption(t *testing.T) {
	for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{adopt: []string{"*/a"}, projects: []string{"hub"}})
				content := m{"sourceNamespaces": []any{"*"}, "destinations": []any{m{"name": "*", "namespace": "*"}}}
				here := stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: "a"}
				there := here
				if kind == stream.Application {
					here.Namespace = "edge-1"
					content = m{"project": "hub", "destination": m{"name": "edge-1"}}
				}
				o, copied := thing{r, r.hub.store, here}, thing{r, r.spoke.store, there}
				copied.create(m{"labels": m{"mine": "m"}, "finalizers": []any{cascade, "example.org/theirs"}}, m{"project": "spoke"})
				bystander := thing{r, r.spoke.store, stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: "b"}}
				bystander.create(m{"finalizers": []any{cascade}}, m{"project": "spoke"})
				uid, untouched := copied.field("metadata", "uid"), bystander.revision()
				o.create(m{"labels": m{"team": "x"}}, content)
				r.connect()
				pass(time.Minute)
				if copied.field("metadata", "uid") != uid || copied.field("spec", "project") == "spoke" ||
					copied.field("metadata", "annotations", source) != o.field("metadata", "uid") {
					t.Errorf("not adopted in place: %v", copied.get())
				}
				if diff := cmp.Diff(any([]any{"example.org/theirs"}), copied.field("metadata", "finalizers")); diff != "" {
					t.Errorf("finalizers of what was adopted (-want +got)\n%s", diff)
				}
				if diff := cmp.Diff(any(m{"mine": "m", "team": "x"}), copied.field("metadata", "labels")); diff != "" {
					t.Errorf("labels of what was adopted (-want +got)\n%s", diff)
				}
				if bystander.revision() != untouched {
					t.Error("what the hub does not know was written")
				}
			})
		})
	}
}

// thing is one object of a store.
type thing struct {
	r     *pair
	store *memory.Store
	key   stream.ResourceKey
}

func (o thing) create(meta, spec m) {
	o.r.t.Helper()
	metadata := m{"namespace": o.key.Namespace, "name": o.key.Name}
	maps.Copy(metadata, meta)
	fields := m{"apiVersion": "argoproj.io/v1alpha1", "kind": string(o.key.Kind), "metadata": metadata, "spec": spec}
	if _, err := o.store.Create(o.r.ctx, o.key, text(o.r.t, fields)); err != nil {
		o.r.t.Fatal(err)
	}
}

// get returns nil when there is none.
func (o thing) get() m {
	o.r.t.Helper()
	read, err := o.store.Read(o.r.ctx, o.key)
	if errors.Is(err, stream.ErrNotFound) {
		return nil
	}
	if err != nil {
		o.r.t.Fatal(err)
	}
	return parse(o.r.t, read)
}

func (o thing) field(path ...string) any { return at(o.get(), path...) }
func (o thing) revision() any            { return o.field("metadata", "resourceVersion") }

func (o thing) update(change func(m)) {
	o.r.t.Helper()
	o.r.updateKey(o.store, o.key, change)
}

func (o thing) remove() {
	o.r.t.Helper()
	if err := o.store.Delete(o.r.ctx, o.key, backends.Preconditions{}); err != nil {
		o.r.t.Fatal(err)
	}
}

// TestWhatStoodInTheWayGoes: an entry that is refused for an object of someone else comes
// about soon when that object goes, or when its owner allows its adoption, however long it
// has been refused.
func TestWhatStoodInTheWayGoes(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		for what, ends := range map[string]func(r *pair, where end){
			"is deleted": func(r *pair, where end) { r.remove(where, "a") },
			"may be adopted": func(r *pair, where end) {
				r.update(where, "a", func(app m) {
					app["metadata"].(m)["annotations"] = m{"argocd.argoproj.io/adoption-policy": "always"}
				})
			},
		} {
			t.Run(mode.String()+", it "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newPair(t, options{mode: mode, adopt: []string{"application/b"}})
					owner, other := r.hub, r.spoke
					if mode == stream.Autonomous {
						owner, other = r.spoke, r.hub
					}
					r.create(other, "a", nil, spec("theirs"))
					r.create(owner, "a", nil, spec("ours"))
					r.connect()
					pass(30 * time.Minute)
					if app := r.get(other, "a"); at(app, "spec", "source", "path") != "theirs" {
						t.Fatalf("taken over: %v", app)
					}
					ends(r, other)
					pass(10 * time.Second)
					if app := r.get(other, "a"); at(app, "spec", "source", "path") != "ours" {
						t.Errorf("after 10 s it is %v; parked: %v", app, r.stats(owner).Parked)
					}
				})
			})
		}
	}
}
