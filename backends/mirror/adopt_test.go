package mirror_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// mortal lets the process die that writes to a store: after so many writes none of its
// calls gets through any more.
type mortal struct {
	armed, dead atomic.Bool
	left        atomic.Int64
}

func (f *mortal) dieAfter(writes int) {
	f.left.Store(int64(writes))
	f.armed.Store(true)
}

func (f *mortal) fault(op memory.Op, _ stream.ResourceKey) error {
	if !f.armed.Load() {
		return nil
	}
	if op != memory.OpRead && f.left.Add(-1) < 0 {
		f.dead.Store(true)
	}
	if f.dead.Load() {
		return stream.ErrUnavailable
	}
	return nil
}

// owned is an object of someone on a side that is not the owner's, before, while and
// after a copy takes its place. Contents are of spec or data.
type owned struct {
	kind                  stream.Kind
	theirs, hub, returned m
	labels                m // on both sides
	finalizers            []any
}

func ownedObjects() map[string]owned {
	both := m{"sourceNamespaces": []any{"*"}, "destinations": []any{m{"name": "*", "namespace": "*"}}}
	locked := m{"destinations": []any{}, "description": "locked"}
	repository := func(password string) m { return m{"url": "eA==", "project": "YQ==", "password": password} }
	return map[string]owned{
		"Application": {
			kind: stream.Application,
			theirs: m{"project": "theirs", "source": m{"path": "theirs"}, "syncPolicy": m{
				"automated": m{"prune": true}, "syncOptions": []any{"CreateNamespace=true"},
			}},
			hub:        m{"project": "hub", "destination": m{"name": "edge-1"}, "source": m{"path": "hub"}, "syncPolicy": m{"automated": m{}}},
			finalizers: []any{cascade, "example.org/theirs"},
			returned:   m{"project": "theirs", "source": m{"path": "theirs"}, "syncPolicy": m{"syncOptions": []any{"CreateNamespace=true"}}},
		},
		"AppProject": {kind: stream.AppProject, theirs: locked, hub: both, returned: locked},
		"Secret": {
			kind: stream.Secret, theirs: repository("dGhlaXJz"), hub: repository("aHVi"), returned: repository("dGhlaXJz"),
			labels: m{"argocd.argoproj.io/secret-type": "repository"},
		},
	}
}

// put makes the object, of a team.
func (o owned) put(r *pair, store *memory.Store, namespace string, content m, finalizers []any, team string) thing {
	r.t.Helper()
	key := stream.ResourceKey{Kind: o.kind, Namespace: namespace, Name: "a"}
	labels := m{"team": team}
	maps.Copy(labels, o.labels)
	metadata := m{"namespace": namespace, "name": "a", "labels": labels, "annotations": m{"note": team}}
	if finalizers != nil {
		metadata["finalizers"] = finalizers
	}
	field, version := "spec", "argoproj.io/v1alpha1"
	if o.kind == stream.Secret {
		field, version = "data", "v1"
	}
	fields := m{"apiVersion": version, "kind": string(o.kind), "metadata": metadata, field: content}
	if _, err := store.Create(r.ctx, key, text(r.t, fields)); err != nil {
		r.t.Fatal(err)
	}
	return thing{r, store, key}
}

func (o owned) content(th thing) any {
	if o.kind == stream.Secret {
		return th.field("data")
	}
	return th.field("spec")
}

// kept counts the Secrets that keep what was found.
func kept(store *memory.Store) int {
	n := 0
	for _, o := range store.List(stream.Secret, "argocd") {
		if bytes.Contains(o.Raw, []byte("argomesh.io/found-of")) {
			n++
		}
	}
	return n
}

// TestAdoptedIsGivenBack: an object of the spoke that its owner lets the hub have is, in
// the end, what it was, whenever the agent dies on the way. An Application comes back
// without automated synchronization and without an operation, and says so.
func TestAdoptedIsGivenBack(t *testing.T) {
	for name, o := range ownedObjects() {
		for deaths := range 5 {
			t.Run(fmt.Sprint(name, " ", deaths), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &mortal{}
					opts := options{adopt: []string{"*/a"}, projects: []string{"hub"}, spoke: memory.Config{Fault: f.fault}}
					var found atomic.Bool
					opts.spoke.Journal = func(a memory.Accepted) {
						switch {
						case bytes.Contains(a.Object.Raw, []byte("argomesh.io/found-of")):
							found.Store(true)
						case bytes.Contains(a.Object.Raw, []byte(`\"adopted\"`)) && !found.Load():
							t.Error("it was adopted before what was found was kept")
						}
					}
					r := newPair(t, opts)
					cascades := watchCascades(t, r.spoke.store)
					namespace := "argocd"
					if o.kind == stream.Application {
						namespace = "edge-1"
					}
					theirs := o.put(r, r.spoke.store, "argocd", o.theirs, o.finalizers, "theirs")
					uid := theirs.field("metadata", "uid")
					hubs := o.put(r, r.hub.store, namespace, o.hub, nil, "hub")
					if o.kind == stream.Secret { // it goes with its project
						project := ownedObjects()["AppProject"]
						project.put(r, r.hub.store, "argocd", project.hub, nil, "hub")
					}
					restart := func() {
						t.Helper()
						pass(time.Minute)
						r.cancel(nil)
						r.wait.Wait()
						f.armed.Store(false)
						f.dead.Store(false)
						opts.stores = [2]*memory.Store{r.hub.store, r.spoke.store}
						r = newPair(t, opts)
						theirs.r, hubs.r = r, r
						r.connect()
						pass(time.Minute)
					}

					f.dieAfter(deaths)
					r.connect()
					restart()
					if got := theirs.field("metadata", "labels", "team"); got != "hub" || theirs.field("metadata", "uid") != uid {
						t.Fatalf("not adopted in place: %v", theirs.get())
					}
					if kept(r.spoke.store) != 1 {
						t.Errorf("%d Secrets keep what was found", kept(r.spoke.store))
					}

					theirs.update(func(fields m) {
						fields["metadata"].(m)["labels"].(m)["later"] = "l"
						if o.kind == stream.Application {
							fields["operation"] = m{"sync": m{"prune": true}}
						}
					})
					pass(time.Second)
					f.dieAfter(deaths)
					hubs.remove()
					restart()

					if got := theirs.field("metadata", "uid"); got != uid {
						t.Fatalf("it had UID %v, and has %v", uid, got)
					}
					if diff := cmp.Diff(any(o.returned), o.content(theirs)); diff != "" {
						t.Errorf("given back (-want +got)\n%s", diff)
					}
					labels := m{"team": "theirs", "later": "l"}
					maps.Copy(labels, o.labels)
					if diff := cmp.Diff(any(labels), theirs.field("metadata", "labels")); diff != "" {
						t.Errorf("labels (-want +got)\n%s", diff)
					}
					annotations, _ := theirs.field("metadata", "annotations").(m)
					told := annotations["argomesh.io/returned"]
					delete(annotations, "argomesh.io/returned")
					if diff := cmp.Diff(m{"note": "theirs"}, annotations); diff != "" {
						t.Errorf("annotations (-want +got)\n%s", diff)
					}
					if o.kind == stream.Application {
						list, _ := theirs.field("status", "conditions").([]any)
						if len(list) != 1 || theirs.field("operation") != nil {
							t.Errorf("conditions %v, operation %v", list, theirs.field("operation"))
						}
						told = list
						finalizers, _ := theirs.field("metadata", "finalizers").([]any)
						if len(finalizers) != 2 || !slices.Contains(finalizers, any(cascade)) {
							t.Errorf("finalizers %v", finalizers)
						}
					}
					if told == nil {
						t.Error("its owner is told nothing")
					}
					if n := kept(r.spoke.store); n != 0 && deaths == 4 {
						t.Errorf("%d Secrets are left", n)
					}
					if cascades() != 0 {
						t.Error("something was deleted together with its workloads")
					}
				})
			})
		}
	}
}

// TestAnotherOfThatNameIsAdopted: the owner deletes what was adopted, and makes another
// one. What he gets back is that one.
func TestAnotherOfThatNameIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{adopt: []string{"application/a"}})
		r.create(r.spoke, "a", nil, spec("first"))
		r.create(r.hub, "a", nil, spec("hub"))
		cut, _ := r.connect()
		pass(time.Minute)
		cut()
		r.remove(r.spoke, "a")
		r.create(r.spoke, "a", nil, spec("second"))
		uid := at(r.get(r.spoke, "a"), "metadata", "uid")
		r.connect()
		pass(time.Minute)
		if got := at(r.get(r.spoke, "a"), "spec", "source", "path"); got != "hub" {
			t.Fatalf("the second one has path %v", got)
		}
		r.remove(r.hub, "a")
		pass(time.Minute)
		if app := r.get(r.spoke, "a"); at(app, "metadata", "uid") != uid || at(app, "spec", "source", "path") != "second" {
			t.Errorf("given back, it is %v", app)
		}
	})
}

// TestTheHubAdopts what an Agent names, and gives it back when the original goes, and
// when the agent does.
func TestTheHubAdopts(t *testing.T) {
	for _, departs := range []bool{false, true} {
		t.Run(fmt.Sprint("the agent departs: ", departs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{mode: stream.Autonomous, adopt: []string{"application/a"}})
				for _, name := range []string{"a", "b"} {
					r.create(r.hub, name, nil, spec("hub"))
					r.create(r.spoke, name, nil, spec("spoke"))
				}
				uid, untouched := at(r.get(r.hub, "a"), "metadata", "uid"), r.revision(r.hub, "b")
				r.connect()
				pass(time.Minute)
				if app := r.get(r.hub, "a"); at(app, "spec", "source", "path") != "spoke" || at(app, "metadata", "uid") != uid {
					t.Fatalf("not adopted: %v", app)
				}
				if departs {
					r.cancel(nil)
					r.wait.Wait()
					d := departure(t, r.hub.store, stream.Autonomous)
					for range 20 {
						if _, err := d.Orphan(t.Context()); err != nil {
							t.Fatal(err)
						}
						pass(time.Second)
					}
					if waiting, err := d.Orphan(t.Context()); waiting != "" || err != nil {
						t.Errorf("Orphan() = %q, %v", waiting, err)
					}
				} else {
					r.remove(r.spoke, "a")
					pass(time.Minute)
				}
				r.ctx = t.Context()
				if app := r.get(r.hub, "a"); at(app, "metadata", "uid") != uid || at(app, "spec", "source", "path") != "hub" {
					t.Errorf("given back, it is %v", app)
				}
				if r.revision(r.hub, "b") != untouched {
					t.Error("what nobody let be adopted was written")
				}
				if n := kept(r.hub.store); n != 0 {
					t.Errorf("%d Secrets are left", n)
				}
			})
		})
	}
}
