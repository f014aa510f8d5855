package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/budget"
)

// Keys of historyConfigMap's data that say what is left of the hub's budget. They have a field
// manager of their own, so that they come and go beside the others.
const (
	budgetWritesKey = "budget-writes"
	budgetBytesKey  = "budget-bytes"
	budgetAtKey     = "budget-at"
)

// budgetStore keeps what is left of the hub's budget in historyConfigMap, so that an
// agent that starts, or takes over from another, has no new burst.
type budgetStore struct {
	client    dynamic.Interface
	namespace string
	budget    *budget.Peer
	log       zerolog.Logger
}

// restore takes what is kept, if it is less than what this process knows. What no one can
// read says nothing: no more is lost than one burst.
func (m budgetStore) restore(ctx context.Context) error {
	cm, err := m.client.Resource(configMaps).Namespace(m.namespace).Get(ctx, historyConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what is left of the hub's budget: %w", err)
	}
	data, _, err := unstructured.NestedStringMap(cm.Object, "data")
	if err != nil {
		return nil //nolint:nilerr // damaged, as if it was not there
	}
	m.budget.Lower(levelsOf(data), time.Now())
	return nil
}

// levelsOf is what the ConfigMap says; the zero value for nothing.
func levelsOf(data map[string]string) budget.Levels {
	writes, writesErr := strconv.ParseInt(data[budgetWritesKey], 10, 64)
	bytes, bytesErr := strconv.ParseInt(data[budgetBytesKey], 10, 64)
	at, atErr := time.Parse(time.RFC3339, data[budgetAtKey])
	if writesErr != nil || bytesErr != nil || atErr != nil {
		return budget.Levels{}
	}
	return budget.Levels{Writes: writes, Bytes: bytes, At: at}
}

// Run writes each minute, until ctx is done, what was used and not yet written.
func (m budgetStore) Run(ctx context.Context) error {
	return budget.SavePeriodically(ctx, func(written budget.Levels, now time.Time) (budget.Levels, bool) {
		return m.budget.Levels(now), m.budget.ReportDue(written, now)
	}, m.write, func(err error) {
		m.log.Warn().Err(err).Msg("cannot save what is left of the hub's budget, retrying")
	})
}

func (m budgetStore) write(ctx context.Context, left budget.Levels) error {
	cm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": historyConfigMap, "namespace": m.namespace},
		"data": map[string]any{
			budgetWritesKey: strconv.FormatInt(left.Writes, 10), budgetBytesKey: strconv.FormatInt(left.Bytes, 10),
			budgetAtKey: left.At.UTC().Format(time.RFC3339),
		},
	}}
	_, err := m.client.Resource(configMaps).Namespace(m.namespace).Apply(ctx, historyConfigMap, cm,
		metav1.ApplyOptions{FieldManager: "argomesh-agent-budget", Force: true})
	return err
}
