package strangers

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argomesh/argomesh/test/kit"
)

// Who knocks is written at once, who knocks on is counted once a minute, and who is
// registered meanwhile goes.
func TestKept(t *testing.T) {
	a, b := id(t, "a"), id(t, "b")
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		var writes atomic.Int64
		var refuse atomic.Bool
		client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetVerb() != "get" {
				writes.Add(1)
				if refuse.Load() {
					return true, nil, fmt.Errorf("the API server is tired")
				}
			}
			return false, nil, nil
		})
		var registered atomic.Bool
		k, err := New(Config{
			Client: client, Namespace: "argocd", Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
			Known: func(of spiffeid.ID) bool { return registered.Load() && of == a },
		})
		if err != nil {
			t.Fatal(err)
		}
		kit.Background(t, k.Run)
		kept := func() List {
			t.Helper()
			synctest.Wait()
			o, err := client.Resource(Resource).Namespace("argocd").Get(t.Context(), Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			data, _, err := unstructured.NestedStringMap(o.Object, "data")
			if err != nil {
				t.Fatal(err)
			}
			l, err := Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		k.Record(a, time.Now())
		if l := kept(); len(l) != 1 || l[0].ID != a || l[0].Times != 1 {
			t.Errorf("after one: %v", l)
		}
		for range 59 {
			k.Record(a, time.Now())
			k.Record(b, time.Now())
			time.Sleep(time.Second) //nolint:forbidigo // the clock of the bubble
		}
		if l := kept(); len(l) != 1 || writes.Load() != 1 {
			t.Errorf("before a minute is over: %v, %d writes", l, writes.Load())
		}
		refuse.Store(true)
		time.Sleep(time.Second) //nolint:forbidigo // the clock of the bubble
		if l := kept(); len(l) != 1 || writes.Load() != 2 {
			t.Errorf("after a write that failed: %v, %d writes", l, writes.Load())
		}
		refuse.Store(false)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock of the bubble
		if l := kept(); len(l) != 2 || l[0].Times+l[1].Times != 119 || writes.Load() != 3 {
			t.Errorf("after the next: %v, %d writes", l, writes.Load())
		}
		registered.Store(true)
		k.Record(b, time.Now())
		time.Sleep(time.Minute) //nolint:forbidigo // the clock of the bubble
		if l := kept(); len(l) != 1 || l[0].ID != b {
			t.Errorf("after a was registered: %v", l)
		}
	})
}

// However many knock, the newest are kept, and the rest is counted.
func TestNewestAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		k, err := New(Config{
			Client: client, Namespace: "argocd", Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
			Known: func(spiffeid.ID) bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		kit.Background(t, k.Run)
		knock := func(name string) {
			time.Sleep(time.Second) //nolint:forbidigo // the clock of the bubble
			k.Record(id(t, name), time.Now())
		}
		knock("first")
		for i := range Max + 9 {
			knock(fmt.Sprint("n", i))
		}
		time.Sleep(time.Hour) //nolint:forbidigo // the clock of the bubble
		o, err := client.Resource(Resource).Namespace("argocd").Get(t.Context(), Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		l, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) != Max || l[0].ID != id(t, fmt.Sprint("n", Max+8)) || l[Max-1].ID != id(t, "n9") {
			t.Errorf("%d are kept, from %v to %v", len(l), l[0].ID, l[len(l)-1].ID)
		}
		if got := testutil.ToFloat64(k.dropped); got != 10 {
			t.Errorf("argomesh_unknown_ids_dropped_total = %v, want 10", got)
		}
	})
}

func TestNew(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New() of nothing succeeds")
	}
}
