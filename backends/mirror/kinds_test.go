package mirror_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

var allKinds = memory.Config{Kinds: []stream.Kind{stream.Application, stream.AppProject, stream.Secret, stream.ConfigMap}}

// wire remembers which Secrets were ever sent.
type wire struct {
	mu   sync.Mutex // guards sent
	sent map[string]bool
}

func (w *wire) watch(msg stream.Message) {
	batch, _ := msg.(stream.Batch)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range batch.Events {
		if e.Key.Collection == stream.Repositories && e.Verb == stream.Apply {
			w.sent[e.Key.Name] = true
		}
	}
}

func (w *wire) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.sent))
}

// put creates an object in Argo CD's namespace, or replaces what is there.
func (r *pair) put(e end, kind stream.Kind, name string, meta, rest m) {
	r.t.Helper()
	key := stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: name}
	version := "v1"
	if kind == stream.AppProject {
		version = "argoproj.io/v1alpha1"
	}
	metadata := m{"name": name, "namespace": "argocd"}
	maps.Copy(metadata, meta)
	fields := m{"apiVersion": version, "kind": string(kind), "metadata": metadata}
	maps.Copy(fields, rest)
	var err error
	if o, found := e.store.Get(key); found {
		_, err = e.store.Update(r.ctx, o, text(r.t, fields))
	} else {
		_, err = e.store.Create(r.ctx, key, text(r.t, fields))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *pair) drop(e end, kind stream.Kind, name string) {
	r.t.Helper()
	key := stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: name}
	if err := e.store.Delete(r.ctx, key, backends.Preconditions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *pair) project(name string, admits bool) {
	namespace := "somebody-else"
	if admits {
		namespace = "edge-1"
	}
	r.put(r.hub, stream.AppProject, name, nil, m{"spec": m{
		"sourceNamespaces": []any{namespace}, "destinations": []any{m{"name": "edge-1", "namespace": "*"}},
	}})
}

func (r *pair) secret(name, secretType, project, url string) {
	data := m{"url": base64.StdEncoding.EncodeToString([]byte(url)), "password": "aHVudGVyMg=="}
	if project != "" {
		data["project"] = base64.StdEncoding.EncodeToString([]byte(project))
	}
	r.put(r.hub, stream.Secret, name, m{"labels": m{"argocd.argoproj.io/secret-type": secretType}}, m{"data": data})
}

// secrets are the names of those on the spoke.
func (r *pair) secrets() []string {
	var names []string
	for _, o := range r.spoke.store.List(stream.Secret, "argocd") {
		names = append(names, o.Key.Name)
	}
	return names
}

func (r *pair) wantSecrets(when string, want ...string) {
	r.t.Helper()
	pass(time.Second)
	if diff := cmp.Diff(want, r.secrets()); diff != "" {
		r.t.Errorf("Secrets of the spoke %s (-want +got):\n%s", when, diff)
	}
}

func using(url string) m {
	return m{"spec": m{"project": "default", "destination": m{"name": "edge-1"}, "source": m{"repoURL": url}}}
}

// Which Secrets an agent has follows its projects and its Applications, in whatever
// order they come and go; and what it must not have is never sent.
func TestSecretsFollowWhatTheAgentNeeds(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared without a project: ", shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{sent: map[string]bool{}}
				r := newPair(t, options{hub: allKinds, spoke: allKinds, watch: w.watch, configure: func(_ stream.Side, cfg *mirror.Config) {
					cfg.Rules.SharesUnscoped = shared
				}})
				with := func(names []string, unscoped ...string) []string {
					if shared {
						names = append(names, unscoped...)
						slices.Sort(names)
					}
					return names
				}
				r.connect()
				r.secret("a", "repository", "web", "https://git.test/a")
				r.secret("other", "repository", "shop", "https://git.test/used")
				r.secret("writes", "repository-write", "web", "https://git.test/a")
				r.secret("cluster", "cluster", "web", "https://git.test/a")
				r.secret("used", "repository", "", "https://git.test/used.git")
				r.secret("template", "repo-creds", "", "https://git.test/us")
				r.secret("unused", "repository", "", "https://git.test/unused")
				r.wantSecrets("without project and Application")
				r.project("web", true)
				r.project("shop", false)
				r.wantSecrets("with its project", "a")
				r.create(r.hub, "app", nil, using("https://git.test/used"))
				r.wantSecrets("with an Application", with([]string{"a"}, "template", "used")...)

				r.project("web", false)
				r.wantSecrets("without its project", with(nil, "template", "used")...)
				r.project("web", true)
				r.remove(r.hub, "app")
				r.wantSecrets("without its Application", "a")
				r.drop(r.hub, stream.AppProject, "web")
				r.wantSecrets("after the project went")
				r.project("web", true)
				r.drop(r.hub, stream.Secret, "a")
				r.wantSecrets("after the Secret went")
				if diff := cmp.Diff(with([]string{"a"}, "template", "used"), w.names()); diff != "" {
					t.Errorf("Secrets that were ever sent (-want +got):\n%s", diff)
				}
				if s := r.stats(r.hub); !s.Agreed || len(s.Parked) > 0 {
					t.Errorf("Stats() = %+v", s)
				}
			})
		})
	}
}

// A spoke that says so in its handshake gets write credentials; one that says no
// more loses them.
func TestWriteCredentialsFollowTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := policy.Default()
		allowed.Kinds = append(allowed.Kinds, "repository-write")
		r := newPair(t, options{hub: allKinds, spoke: allKinds, configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Spoke {
				cfg.Rules.Policy = &allowed
			}
		}})
		r.project("web", true)
		r.secret("a", "repository", "web", "https://git.test/a")
		r.secret("writes", "repository-write", "web", "https://git.test/a")
		cut, _ := r.connect()
		r.wantSecrets("that says nothing", "a")
		cut()
		r.options.writes = true
		cut, _ = r.connect()
		r.wantSecrets("that takes them", "a", "writes")
		cut()
		r.options.writes = false
		r.connect()
		r.wantSecrets("that takes them no more", "a")
	})
}

// A hub that shared its project default and does so no more takes nothing from a spoke:
// an agent that can give the copy up does, and one that would delete it keeps getting it.
func TestTheDefaultProjectIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decided := ownership.Shared
		configure := func(_ stream.Side, cfg *mirror.Config) { cfg.Rules.DefaultProject = decided }
		adopt := []string{"appproject/default"}
		r := newPair(t, options{configure: configure, adopt: adopt})
		spoke := func(r *pair, when, description string, copied bool) {
			t.Helper()
			pass(time.Second)
			o, err := r.spoke.store.Read(r.ctx, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "default"})
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			_, marked := at(parse(t, o), "metadata", "annotations", "argocd.argoproj.io/source-uid").(string)
			if got := at(parse(t, o), "spec", "description"); got != description || marked != copied {
				t.Errorf("%s the spoke has description %v, a copy: %v, want %q, %v", when, got, marked, description, copied)
			}
		}
		describe := func(r *pair, text string) {
			r.put(r.hub, stream.AppProject, "default", nil, m{"spec": m{
				"description": text, "sourceNamespaces": []any{"*"}, "destinations": []any{m{"server": "*", "namespace": "*"}},
			}})
		}
		describe(r, "first")
		cut, _ := r.connect()
		spoke(r, "while it is shared", "first", true)
		cut()
		r.cancel(nil)
		r.wait.Wait()

		decided = ownership.NoLongerShared
		r = newPair(t, options{configure: configure, adopt: adopt, stores: [2]*memory.Store{r.hub.store, r.spoke.store}})
		describe(r, "second")
		cut, _ = r.connect()
		spoke(r, "with an older agent", "second", true)
		cut()
		r.options.givesUp = true
		cut, _ = r.connect()
		spoke(r, "once it is given up", "second", false)
		describe(r, "third")
		spoke(r, "after another change on the hub", "second", false)
		cut()
		r.connect()
		spoke(r, "on the next connection", "second", false)
		if s := r.stats(r.hub); !s.Agreed || s.AppProjects != 0 {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// The life of a Secret and of a ConfigMap while the agent is away, and what people of
// the spoke do to the copies.
func TestKindsWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{hub: allKinds, spoke: allKinds})
		r.project("web", true)
		r.secret("a", "repository", "web", "https://git.test/a")
		r.secret("b", "repository", "web", "https://git.test/b")
		r.put(r.spoke, stream.ConfigMap, "argocd-gpg-keys-cm", nil, m{"data": m{"OWN": "o"}})
		r.put(r.hub, stream.ConfigMap, "argocd-gpg-keys-cm", nil, m{"data": m{"A": "1", "B": "2"}})
		cut, _ := r.connect()
		keys := func(when string, want m) {
			t.Helper()
			pass(time.Second)
			o, err := r.spoke.store.Read(r.ctx, stream.ResourceKey{Kind: stream.ConfigMap, Namespace: "argocd", Name: "argocd-gpg-keys-cm"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(want), at(parse(t, o), "data")); diff != "" {
				t.Errorf("keys of the spoke %s (-want +got):\n%s", when, diff)
			}
		}
		r.wantSecrets("at first", "a", "b")
		keys("at first", m{"A": "1", "B": "2", "OWN": "o"})
		cut()
		synctest.Wait()
		r.drop(r.hub, stream.Secret, "a")
		r.drop(r.spoke, stream.Secret, "b")
		r.put(r.hub, stream.ConfigMap, "argocd-gpg-keys-cm", nil, m{"data": m{"B": "3"}})
		r.connect()
		r.wantSecrets("after a deletion on either side while it was away", "b")
		keys("after a change while it was away", m{"B": "3", "OWN": "o"})
		r.drop(r.hub, stream.ConfigMap, "argocd-gpg-keys-cm")
		keys("after the hub's went", m{"OWN": "o"})
		if s := r.stats(r.hub); !s.Agreed {
			t.Errorf("Stats() = %+v", s)
		}
	})
}
