package kube

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// grounded is an API server that knows namespaces, the definition of Applications, and
// Applications, by metadata alone.
type grounded struct {
	mu       sync.Mutex // guards what follows
	revision uint64
	objects  map[string]*metav1.PartialObjectMetadata // by resource, namespace and name
	reads    int
	fails    error
}

func newGrounded() *grounded {
	g := &grounded{revision: 10, objects: map[string]*metav1.PartialObjectMetadata{}}
	g.put("namespaces//edge-1", "ns-1", false)
	g.put("customresourcedefinitions//applications.argoproj.io", "crd-1", false)
	return g
}

func (g *grounded) put(name string, uid types.UID, deleting bool) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	if deleting {
		o.DeletionTimestamp = &metav1.Time{}
	}
	g.objects[name] = o
}

func (g *grounded) Resource(r schema.GroupVersionResource) metadata.Getter {
	return groundedResource{grounded: g, resource: r.Resource}
}

// groundedResource is what of it a client reads; no one calls the other methods.
type groundedResource struct {
	metadata.Getter
	grounded  *grounded
	resource  string
	namespace string
}

func (r groundedResource) Namespace(namespace string) metadata.ResourceInterface {
	r.namespace = namespace
	return r
}

func (r groundedResource) Get(_ context.Context, name string, opts metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	g := r.grounded
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reads++; g.fails != nil {
		return nil, g.fails
	}
	o, there := g.objects[r.resource+"/"+r.namespace+"/"+name]
	switch {
	case opts.ResourceVersion != "":
		return nil, errors.New("not a consistent read")
	case !there:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.resource}, name)
	}
	return o, nil
}

func (r groundedResource) List(_ context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	g := r.grounded
	g.mu.Lock()
	defer g.mu.Unlock()
	if opts.ResourceVersion != "" || opts.LabelSelector != "" || r.resource != "applications" {
		return nil, errors.New("not a consistent list of Applications")
	}
	list := &metav1.PartialObjectMetadataList{}
	list.ResourceVersion = strconv.FormatUint(g.revision, 10)
	return list, g.fails
}

func newWitnessOf(t *testing.T, g *grounded) *Witness {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	store, err := New(Config{Client: client, Watch: map[stream.Kind][]string{stream.Application: nil}, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return NewWitness(store, g, zerolog.Nop())
}

func deletionAt(revision uint64) backends.Deletion {
	return backends.Deletion{
		Last:     backends.Object{Key: stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "shop"}, UID: "shop-1"},
		Revision: revision,
	}
}

func TestWitness(t *testing.T) {
	const ns, crd, shop = "namespaces//edge-1", "customresourcedefinitions//applications.argoproj.io", "applications/edge-1/shop"
	for name, c := range map[string]struct {
		// meanwhile is what happens beside the deletion, at revision 20.
		meanwhile func(*grounded)
		at        uint64 // of the deletion; zero means 20
		want      bool
	}{
		"somebody deleted it":                       {want: true},
		"its namespace is being deleted":            {meanwhile: func(g *grounded) { g.put(ns, "ns-1", true) }},
		"its namespace is gone":                     {meanwhile: func(g *grounded) { delete(g.objects, ns) }},
		"its namespace is another one":              {meanwhile: func(g *grounded) { g.put(ns, "ns-2", false) }},
		"the definition is being deleted":           {meanwhile: func(g *grounded) { g.put(crd, "crd-1", true) }},
		"the definition is another one":             {meanwhile: func(g *grounded) { g.put(crd, "crd-2", false) }},
		"there is another one":                      {meanwhile: func(g *grounded) { g.put(shop, "shop-2", false) }},
		"it is there, and only lost a label":        {meanwhile: func(g *grounded) { g.put(shop, "shop-1", false) }},
		"the API server has not come that far":      {at: 21},
		"nobody knew the namespace before":          {at: 9},
		"the API server went back, and came again":  {meanwhile: func(g *grounded) { g.put(shop, "shop-1", false); g.revision = 30 }},
		"what happens beside it in other ones":      {meanwhile: func(g *grounded) { g.put("namespaces//edge-2", "x", true) }, want: true},
		"it is the first that the API server wrote": {at: 10, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrounded()
			w := newWitnessOf(t, g)
			w.want(ground{"edge-1"}, ground{})
			if err := w.readAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			g.revision = 20
			if c.meanwhile != nil {
				c.meanwhile(g)
			}
			if c.at == 0 {
				c.at = 20
			}
			got, err := w.Confirm(t.Context(), []backends.Deletion{deletionAt(c.at)})
			if err != nil || len(got) != 1 || got[0] != c.want {
				t.Errorf("Confirm() = %v, %v, want %t", got, err, c.want)
			}
		})
	}
}

// A namespace that has gone and come again is known again, for what is deleted in the new
// one.
func TestWitnessKnowsWhatCameAgain(t *testing.T) {
	g := newGrounded()
	w := newWitnessOf(t, g)
	confirm := func(at uint64) bool {
		t.Helper()
		g.revision = at
		got, err := w.Confirm(t.Context(), []backends.Deletion{deletionAt(at)})
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	if confirm(20) {
		t.Error("a deletion in a namespace that was never read is confirmed")
	}
	w.want(ground{"edge-1"}, ground{})
	if err := w.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !confirm(30) {
		t.Error("a deletion is not confirmed")
	}
	g.put("namespaces//edge-1", "ns-2", false)
	if confirm(40) {
		t.Error("a deletion in a namespace before is confirmed in the next one")
	}
	if err := w.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !confirm(50) {
		t.Error("a deletion in the next namespace is not confirmed")
	}
}

// Of what cannot be read nothing is said, and it is read when it can be.
func TestWitnessCannotRead(t *testing.T) {
	g := newGrounded()
	w := newWitnessOf(t, g)
	w.want(ground{"edge-1"}, ground{})
	g.fails = errors.New("away")
	if err := w.readAll(t.Context()); err == nil {
		t.Fatal("readAll() = nil")
	}
	g.fails = nil
	if err := w.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.revision, g.fails = 20, errors.New("away")
	if got, err := w.Confirm(t.Context(), []backends.Deletion{deletionAt(20)}); err == nil {
		t.Errorf("Confirm() = %v", got)
	}
	g.fails = nil
	many := make([]backends.Deletion, 100)
	for i := range many {
		many[i] = deletionAt(20)
		many[i].Last.Key.Name = strconv.Itoa(i)
	}
	g.reads = 0
	got, err := w.Confirm(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	for i, confirmed := range got {
		if !confirmed {
			t.Errorf("%d is not confirmed", i)
		}
	}
	if g.reads != len(many)+2 {
		t.Errorf("%d reads for %d deletions of one namespace", g.reads, len(many))
	}
}
