package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/backends/budget"
)

// A hub that has a new history each time, as fast as it can, has the agent write no more of
// it than of anything else, and both count together.
func TestHistoriesCountAgainstTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, more = 5, 4
		p := budget.NewPeer("edge-1", budget.Limits{
			Writes: budget.Limit{Rate: 1, Burst: burst}, Bytes: budget.Limit{Rate: 1 << 20, Burst: 1 << 20},
		}, nil, time.Now())
		m := newHistoryStore(nil, "argocd", p, zerolog.Nop())
		began := time.Now()
		for i := range burst + more {
			data := map[string]any{tokenKey: fmt.Sprint("t", i)}
			granted, err := m.afford(t.Context(), data)
			if err != nil {
				t.Fatal(err)
			}
			m.countWrite(granted, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data}}, nil)
		}
		if took := time.Since(began); took < (more-1)*time.Second {
			t.Errorf("%d histories were written within %s, by a budget of %d and one a second", burst+more, took, burst)
		}
		if left := p.Levels(time.Now()); left.Writes > 1 || left.Bytes >= 1<<20 {
			t.Errorf("%+v is left: they did not count", left)
		}
	})
}
