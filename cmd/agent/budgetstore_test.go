package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/backends/budget"
)

// An agent that starts goes on with what is kept; what no one can read says nothing.
func TestBudgetSurvivesInTheMemory(t *testing.T) {
	full := budget.DefaultLimits()
	all := budget.Levels{Writes: full.Writes.Burst, Bytes: full.Bytes.Burst}
	for what, c := range map[string]struct {
		data map[string]any // "now" stands for the time; nil for no ConfigMap
		want budget.Levels
	}{
		"nothing kept":       {want: all},
		"an older memory":    {data: map[string]any{"hub": "u", "token": "t"}, want: all},
		"damaged":            {data: map[string]any{"budget-writes": "x", "budget-bytes": "1", "budget-at": "now"}, want: all},
		"without a time":     {data: map[string]any{"budget-writes": "-3", "budget-bytes": "5"}, want: all},
		"what is left":       {data: map[string]any{"budget-writes": "-3", "budget-bytes": "5", "budget-at": "now"}, want: budget.Levels{Writes: -3, Bytes: 5}},
		"more than there is": {data: map[string]any{"budget-writes": "99999999", "budget-bytes": "99999999999", "budget-at": "now"}, want: all},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // so that no time passes
				now := time.Now()
				var there []runtime.Object
				if c.data != nil {
					data := map[string]any{}
					for key, value := range c.data {
						if data[key] = value; value == "now" {
							data[key] = now.UTC().Format(time.RFC3339)
						}
					}
					there = append(there, &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": historyConfigMap, "namespace": "argocd"}, "data": data,
					}})
				}
				m := budgetStore{
					client: fake.NewSimpleDynamicClient(runtime.NewScheme(), there...), namespace: "argocd",
					budget: budget.NewPeer("edge-1", full, nil, now), log: zerolog.Nop(),
				}
				if err := m.restore(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := m.budget.Levels(now)
				if got.At = (time.Time{}); got != c.want {
					t.Errorf("it has %+v, want %+v", got, c.want)
				}
			})
		})
	}
}
