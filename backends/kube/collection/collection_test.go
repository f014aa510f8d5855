package collection_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/backends/kube/collection"
	"github.com/argomesh/argomesh/backends/kube/reflector"
)

var things = schema.GroupVersionResource{Group: "test", Version: "v1", Resource: "things"}

// thing is an object with a value.
func thing(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test/v1", "kind": "Thing", "metadata": map[string]any{"name": name}, "value": value}}
}

// config keeps the values of things: of "none" nothing, and "bad" cannot be read.
func config(changed func([]collection.Change[string])) collection.Config[string] {
	return collection.Config[string]{
		Value: func(o *unstructured.Unstructured) (string, bool, error) {
			value, _, _ := unstructured.NestedString(o.Object, "value")
			if value == "bad" {
				return "", false, errors.New("bad")
			}
			return value, value != "none", nil
		},
		Changed: changed,
		Indexes: map[string]func(string) []string{"first": func(value string) []string { return []string{value[:1]} }},
	}
}

// text is what a Change says.
func text(c collection.Change[string]) string {
	side := func(value string, there bool) string {
		if !there {
			return "-" + value // which is empty
		}
		return value
	}
	return side(c.Before, c.Had) + " > " + side(c.After, c.Has)
}

// Whatever the API server says of an object, the collection shows it, and then tells.
func TestChanges(t *testing.T) {
	var told []string
	var c *collection.Collection[string]
	c = collection.New(config(func(changes []collection.Change[string]) {
		for _, change := range changes {
			told = append(told, text(change))
			if shown := c.By("first", "x"); change.Has && change.After[0] == 'x' && !slices.Contains(shown, change.After) {
				t.Errorf("%s is told, and %v are shown", text(change), shown)
			}
		}
	}))
	for _, step := range []struct {
		what string
		do   func() error
		told []string
		all  []string
	}{
		{"a new one", func() error { return c.Add(thing("a", "x1")) }, []string{"- > x1"}, []string{"x1"}},
		{"a change", func() error { return c.Update(thing("a", "x2")) }, []string{"x1 > x2"}, []string{"x2"}},
		{"one that cannot be read", func() error { return c.Update(thing("a", "bad")) }, nil, []string{"x2"}},
		{"one of which nothing is kept", func() error { return c.Update(thing("a", "none")) }, []string{"x2 > -"}, nil},
		{"the same again", func() error { return c.Update(thing("a", "none")) }, []string{"- > -"}, nil},
		{"a list", func() error {
			return c.Replace([]any{thing("a", "y1"), thing("b", "x1"), thing("c", "bad"), thing("d", "none")}, "7")
		}, []string{"- > y1", "- > x1"}, []string{"x1", "y1"}},
		{"another list", func() error { return c.Replace([]any{thing("b", "x2")}, "8") }, []string{"x1 > x2", "y1 > -"}, []string{"x2"}},
		{"its end", func() error { return c.Delete(thing("b", "x2")) }, []string{"x2 > -"}, nil},
		{"what is no object", func() error { return errors.Join(c.Update(7), c.Delete(7), c.Replace([]any{7}, "9"), c.Resync()) }, nil, nil},
	} {
		told = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		all := c.All()
		slices.Sort(all)
		if diff := cmp.Diff(step.told, told); diff != "" {
			t.Errorf("%s is told (-want +got):\n%s", step.what, diff)
		}
		if !slices.Equal(all, step.all) || len(c.Names()) != len(all) {
			t.Errorf("after %s there are %v by the names %v, want %v", step.what, all, c.Names(), step.all)
		}
	}
	if got, found := c.Get("a"); found || got != "" {
		t.Errorf("what went is still %q", got)
	}
}

// Who cannot be read says so once, and once that he can be again.
func TestReadable(t *testing.T) {
	var refuse bool
	asked := make(chan struct{})
	answer := make(chan bool)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		if refuse = <-answer; refuse {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"apiVersion":"test/v1","kind":"ThingList","metadata":{"resourceVersion":"7"},"items":[{"apiVersion":"test/v1","kind":"Thing","metadata":{"name":"a"},"value":"x"}]}`)
	}))
	defer api.Close()
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error, 8)
	cfg := config(nil)
	cfg.Readable = func(err error) { said <- err }
	client := dynamic.NewForConfigOrDie(&rest.Config{Host: api.URL})
	cfg.Reflect = reflector.Config{Resource: client.Resource(things), What: "things", MostRetry: time.Millisecond}
	c := collection.New(cfg)
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for _, refused := range []bool{true, true, false} {
		<-asked
		answer <- refused
	}
	if err := <-said; err == nil {
		t.Error("the first call that failed is not told")
	}
	if err := <-said; err != nil {
		t.Errorf("after a call that succeeded %v is told", err)
	}
	<-c.Listed()
	if got, found := c.Get("a"); !found || got != "x" {
		t.Errorf("Get() = %q, %t", got, found)
	}
	<-asked // a watch
	answer <- true
	if err := <-said; err == nil || c.Failure() == nil {
		t.Errorf("a watch that fails is told as %v, and then there is %v", err, c.Failure())
	}
}
