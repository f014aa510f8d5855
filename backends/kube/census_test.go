package kube

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// lister is an API server that lists metadata and takes its time.
type lister struct {
	metadata.Getter // whose other methods nobody calls
	takes           time.Duration

	mu    sync.Mutex           // guards what follows
	there map[string]types.UID // "namespace/name"
	began []time.Time
	fails error
}

func (l *lister) Resource(schema.GroupVersionResource) metadata.Getter { return l }
func (l *lister) Namespace(string) metadata.ResourceInterface          { return l }

func (l *lister) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if opts.ResourceVersion != "" || opts.Limit == 0 {
		return nil, errors.New("not a consistent list in pages")
	}
	l.mu.Lock()
	if opts.Continue == "" {
		l.began = append(l.began, time.Now())
	}
	fails := l.fails
	page := &metav1.PartialObjectMetadataList{}
	if opts.Continue == "" && len(l.there) > 1 {
		page.Continue = "more" // the rest
	} else {
		for key, uid := range l.there {
			o := metav1.PartialObjectMetadata{}
			o.Namespace, o.Name, o.UID = "argocd", key, uid
			page.Items = append(page.Items, o)
		}
	}
	l.mu.Unlock()
	select {
	case <-time.After(l.takes):
		return page, fails
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lister) lists() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.began)
}

func (l *lister) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// newCensus is one of a Store whose cache shows Applications of these names, each with
// its name as UID.
func newCensus(t *testing.T, l *lister, shows ...string) *Census {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Client: client, Watch: map[stream.Kind][]string{stream.Application: nil}, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range shows {
		if err := s.informers[0].Update(&item{object: backends.Object{
			Key: stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}, UID: name, ResourceVersion: "1", Raw: []byte("{}"),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	return NewCensus(s, l)
}

func TestCensusTellsWhatIsNoMore(t *testing.T) {
	tests := map[string]struct {
		there map[string]types.UID
		fails error
		want  bool
	}{
		"all that the cache shows is there":   {there: map[string]types.UID{"a": "a", "b": "b"}, want: true},
		"there is more than the cache shows":  {there: map[string]types.UID{"a": "a", "b": "b", "c": "c"}, want: true},
		"one is gone":                         {there: map[string]types.UID{"a": "a"}},
		"another is there under the name":     {there: map[string]types.UID{"a": "a", "b": "another"}},
		"nothing is there":                    {},
		"the API server does not answer that": {there: map[string]types.UID{"a": "a", "b": "b"}, fails: errors.New("no")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCensus(t, &lister{there: test.there, fails: test.fails}, "a", "b")
				for _, namespace := range []string{"argocd", ""} {
					got, err := c.CaughtUp(t.Context(), stream.Application, namespace)
					if got != test.want || !errors.Is(err, test.fails) {
						t.Errorf("CaughtUp(%q) = %t, %v; want %t, %v", namespace, got, err, test.want, test.fails)
					}
				}
			})
		})
	}
}

// A thousand who ask while a list runs are answered by one that begins after it, and
// the API server has peace in between.
func TestCensusListsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lister{there: map[string]types.UID{"a": "a"}, takes: time.Second}
		c := newCensus(t, l, "a")
		begun := time.Now()
		var all sync.WaitGroup
		ask := func(want bool) {
			all.Go(func() {
				if got, err := c.CaughtUp(t.Context(), stream.Application, ""); got != want || err != nil {
					t.Errorf("CaughtUp() = %t, %v; want %t", got, err, want)
				}
			})
		}
		ask(true)
		synctest.Wait()
		l.set(func() { l.there["a"] = "another" }) // which the list under way does not show
		for range 1000 {
			ask(false)
		}
		all.Wait()
		if n := l.lists(); n != 2 {
			t.Fatalf("%d lists, want 2", n)
		}
		if second := l.began[1].Sub(begun); second != 10*time.Second {
			t.Errorf("the second list began after %s, want 10s", second)
		}
	})
}

// Whoever gives up leaves the list to the others.
func TestCensusOutlivesWhoeverLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lister{there: map[string]types.UID{"a": "a"}, takes: time.Minute / 2}
		c := newCensus(t, l, "a")
		var all sync.WaitGroup
		ask := func(ctx context.Context, want error) {
			all.Go(func() {
				if got, err := c.CaughtUp(ctx, stream.Application, ""); got != (want == nil) || !errors.Is(err, want) {
					t.Errorf("CaughtUp() = %t, %v; want %v", got, err, want)
				}
			})
			synctest.Wait()
		}
		impatient, cancel := context.WithCancel(t.Context())
		ask(impatient, context.Canceled) // lists
		ask(impatient, context.Canceled) // is to list next
		for range 3 {
			ask(t.Context(), nil)
		}
		cancel()
		all.Wait()
		// Who comes back from a list that was given up may be late for the next.
		if n := l.lists(); n < 2 || n > 3 {
			t.Errorf("%d lists, want the one that was given up and one or two", n)
		}
		if len(c.coming) > 0 || len(c.turn) > 0 {
			t.Error("something is left behind")
		}
	})
}

// What is of one namespace does not answer for another.
func TestCensusTellsNamespacesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lister{there: map[string]types.UID{"a": "another"}}
		c := newCensus(t, l, "a")
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				namespace := []string{"argocd", "team", ""}[i]
				want := namespace == "team" // of which the cache shows nothing
				if got, err := c.CaughtUp(t.Context(), stream.Application, namespace); got != want || err != nil {
					t.Errorf("CaughtUp(%q) = %t, %v; want %t", namespace, got, err, want)
				}
			})
		}
		all.Wait()
		if n := l.lists(); n != 3 {
			t.Errorf("%d lists, want 3", n)
		}
	})
}

func TestPartNamesItself(t *testing.T) {
	for want, p := range map[string]part{
		"Application of argocd": {stream.Application, "argocd"}, "Secret of all namespaces": {stream.Secret, ""},
	} {
		if got := p.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
