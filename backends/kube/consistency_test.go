package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
	metadata.Getter // whose other methods no one calls
	takes           time.Duration
	all             time.Duration // of a list of all namespaces; zero for the same

	mu    sync.Mutex           // guards what follows
	there map[string]types.UID // "namespace/name"
	began []time.Time
	took  []time.Duration
	fails error
}

func (l *lister) Resource(schema.GroupVersionResource) metadata.Getter { return l }

func (l *lister) Namespace(namespace string) metadata.ResourceInterface {
	takes := l.takes
	if namespace == "" && l.all > 0 {
		takes = l.all
	}
	return listing{l, takes}
}

// listing is a lister of one namespace, or of all.
type listing struct {
	*lister
	takes time.Duration
}

func (l listing) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if opts.ResourceVersion != "" || opts.Limit == 0 {
		return nil, errors.New("not a consistent list in pages")
	}
	l.mu.Lock()
	if opts.Continue == "" {
		l.began, l.took = append(l.began, time.Now()), append(l.took, l.takes)
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
func newCensus(t *testing.T, l *lister, shows ...string) *ConsistencyChecker {
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
	return NewConsistencyChecker(s, l)
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

// Anyone who gives up leaves the list to the others.
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
		if len(c.queued) > 0 || len(c.slot) > 0 {
			t.Error("something is left behind")
		}
	})
}

// What is of one namespace does not answer for another, though one list may be of all.
func TestCensusTellsNamespacesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lister{there: map[string]types.UID{"a": "another"}, takes: time.Second}
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
		if n := l.lists(); n > 2 {
			t.Errorf("%d lists, want one for who came first, and one for the rest", n)
		}
	})
}

// A restored hub has 1,000 agents, each with a namespace of its own, that connect within
// 20 s. Each wants to know whether the cache shows what is no more, and has to wait a
// minute at most, however long a list of all takes (here 20 ms of one namespace); the API
// server has its peace.
func TestCensusOfAThousandAgents(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, time.Second, 8 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lister{there: map[string]types.UID{"a": "a"}, takes: 20 * time.Millisecond, all: takes}
				c := newCensus(t, l, "a")
				var all sync.WaitGroup
				var longest atomic.Int64
				for i := range 1000 {
					all.Go(func() {
						<-time.After(time.Duration(i) * 20 * time.Millisecond)
						asked := time.Now()
						if got, err := c.CaughtUp(t.Context(), stream.Application, fmt.Sprint("edge-", i)); !got || err != nil {
							t.Errorf("CaughtUp() = %t, %v", got, err)
						}
						for took := int64(time.Since(asked)); ; {
							most := longest.Load()
							if took <= most || longest.CompareAndSwap(most, took) {
								break
							}
						}
					})
				}
				all.Wait()
				t.Logf("%d lists, the longest wait was %v", l.lists(), time.Duration(longest.Load()))
				if most := time.Duration(longest.Load()); most > time.Minute {
					t.Errorf("somebody waited %v", most)
				}
				for i := 1; i < len(l.began); i++ {
					if pause := l.began[i].Sub(l.began[i-1]); pause < min(10*l.took[i-1], l.took[i-1]+consistencyPause) {
						t.Errorf("list %d, of %v, and the one before began %v apart", i, l.took[i-1], pause)
					}
				}
			})
		})
	}
}
