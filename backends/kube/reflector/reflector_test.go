package reflector_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/kube/reflector"
)

// server is an API server with one resource.
type server struct {
	dynamic.ResourceInterface
	mu      sync.Mutex // guards what follows
	version string
	failure error
	lists   []metav1.ListOptions // whole ones
	watches []*watch.FakeWatcher
}

func (s *server) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opts.Limit != 1 {
		s.lists = append(s.lists, opts)
	}
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(s.version)
	return list, s.failure
}

func (s *server) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	w := watch.NewFake()
	s.watches = append(s.watches, w)
	return w, nil
}

// restore puts the API server back to a version, and ends its watches.
func (s *server) restore(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	for _, w := range s.watches {
		w.Stop()
	}
}

// goOn has the API server be at a version.
func (s *server) goOn(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// fail has all calls fail until recover.
func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// recover ends the failure.
func (s *server) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
}

// store counts what it is given.
type store struct{ replaced, added int }

func (s *store) Add(any) error               { s.added++; return nil }
func (s *store) Update(any) error            { return nil }
func (s *store) Delete(any) error            { return nil }
func (s *store) Replace([]any, string) error { s.replaced++; return nil }
func (s *store) Resync() error               { return nil }

// run reflects s until test returns, in a bubble of time.
func run(t *testing.T, s *server, test func(t *testing.T, into *store, answers func() []error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var answers []error
		into := &store{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			reflector.Run(ctx, reflector.Config{
				Resource: s, What: "things", Selector: "a=b",
				Answered: func(_ context.Context, err error) { answers = append(answers, err) },
			}, into)
		}()
		synctest.Wait()
		test(t, into, func() []error { return answers })
		cancel()
		<-done
	})
}

func TestListsByQuorum(t *testing.T) {
	s := &server{version: "7"}
	run(t, s, func(t *testing.T, into *store, _ func() []error) {
		object := &unstructured.Unstructured{}
		object.SetResourceVersion("8")
		s.watches[0].Add(object)
		synctest.Wait()
		if into.replaced != 1 || into.added != 1 {
			t.Errorf("the store was given %d lists and %d objects", into.replaced, into.added)
		}
		if opts := s.lists[0]; opts.ResourceVersion != "" || opts.ResourceVersionMatch != "" || opts.LabelSelector != "a=b" {
			t.Errorf("it asked for %+v", opts)
		}
	})
}

// A watch of an API server that was restored from a backup would show nothing.
func TestListsAgainAfterARestore(t *testing.T) {
	s := &server{version: "70"}
	run(t, s, func(t *testing.T, into *store, answers func() []error) {
		s.restore("50")
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		if into.replaced != 2 {
			t.Fatalf("the store was given %d lists, want that before and that after", into.replaced)
		}
		if opts := s.lists[len(s.lists)-1]; opts.ResourceVersion != "" {
			t.Errorf("it asked for %+v", opts)
		}
		if len(answers()) < 3 {
			t.Errorf("it was told of %v", answers())
		}
	})
}

func TestTellsWhatIsWrong(t *testing.T) {
	s := &server{version: "7", failure: errors.New("away")}
	run(t, s, func(t *testing.T, into *store, answers func() []error) {
		if got := answers(); len(got) != 1 || !errors.Is(got[0], s.failure) || into.replaced != 0 {
			t.Errorf("it was told of %v, and the store of %d lists", got, into.replaced)
		}
	})
}

// However long an API server was away, the next attempt is near.
func TestListsSoonAfterAnOutage(t *testing.T) {
	s := &server{version: "7", failure: errors.New("away")}
	run(t, s, func(t *testing.T, into *store, _ func() []error) {
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		s.recover()
		time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // virtual time; the longest pause
		synctest.Wait()
		if into.replaced != 1 {
			t.Errorf("the store was given %d lists", into.replaced)
		}
	})
}

func TestContinues(t *testing.T) {
	away := errors.New("away")
	for title, tt := range map[string]struct {
		now, was string
		failure  error
		behind   bool
	}{
		"further":           {now: "8", was: "7"},
		"there":             {now: "7", was: "7"},
		"behind":            {now: "6", was: "7", behind: true},
		"no number of ours": {now: "x", was: "7"},
		"away":              {now: "7", was: "7", failure: away},
	} {
		t.Run(title, func(t *testing.T) {
			err := reflector.Continues(t.Context(), &server{version: tt.now, failure: tt.failure}, tt.was)
			switch {
			case tt.failure != nil:
				if !errors.Is(err, tt.failure) {
					t.Errorf("Continues() = %v", err)
				}
			case (err != nil) != tt.behind:
				t.Errorf("Continues() = %v", err)
			}
		})
	}
}
