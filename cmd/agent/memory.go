package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/stream"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// memoryConfigMap keeps what the spoke saw last of its hub's history. A spoke that
// is rebuilt has none, and one that is restored has an older one: so the hub can
// tell what is missing from what was deleted.
const memoryConfigMap = "argomesh-agent"

// Keys of its data.
const (
	memoryHub      = "hub"
	memoryID       = "id"
	memoryToken    = "token"
	memoryRevision = "revision"
)

// memory is what the spoke keeps of its hub's history.
type memory struct {
	client    dynamic.Interface
	namespace string
	log       zerolog.Logger

	mu      sync.Mutex // guards what follows
	hub     string
	history stream.History
}

// load reads what is kept, trying until the API server answers or ctx is done.
func (m *memory) load(ctx context.Context) error {
	return m.retry(ctx, "cannot read what is kept of the hub's history", func() error {
		cm, err := m.client.Resource(configMaps).Namespace(m.namespace).Get(ctx, memoryConfigMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			m.set("", stream.History{})
			return nil
		}
		if err != nil {
			return err
		}
		data, _, err := unstructured.NestedStringMap(cm.Object, "data")
		if err != nil {
			data = nil // damaged, as if it was not there: the hub will ask a person
		}
		revision, err := strconv.ParseUint(data[memoryRevision], 10, 64)
		if err != nil {
			revision = 0
		}
		m.set(data[memoryHub], stream.History{ID: data[memoryID], Token: data[memoryToken], Revision: revision})
		return nil
	})
}

// remember is mirror.Config.Remember. It refuses what is older than what is kept,
// of the same history: the proof that the hub was further must not be lost.
func (m *memory) remember(ctx context.Context, hub string, h stream.History) error {
	switch known, kept := m.tell(); {
	case known != hub:
	case kept.Token == h.Token:
		return nil // of an earlier connection
	case kept.ID == h.ID && kept.Revision > h.Revision:
		return fmt.Errorf("the hub was at revision %d before: a newer token is kept", kept.Revision)
	}
	err := m.retry(ctx, "cannot keep what the hub says of its history", func() error {
		cm := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{
				"name": memoryConfigMap, "namespace": m.namespace,
				"labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"},
			},
			"data": map[string]any{
				memoryHub: hub, memoryID: h.ID, memoryToken: h.Token, memoryRevision: strconv.FormatUint(h.Revision, 10),
			},
		}}
		_, err := m.client.Resource(configMaps).Namespace(m.namespace).Apply(ctx, memoryConfigMap, cm,
			metav1.ApplyOptions{FieldManager: "argomesh-agent", Force: true})
		return err
	})
	if err == nil {
		m.set(hub, h)
	}
	return err
}

func (m *memory) set(hub string, h stream.History) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hub, m.history = hub, h
}

// tell is client.Config.History.
func (m *memory) tell() (hub string, h stream.History) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hub, m.history
}

// retry calls f until it succeeds or ctx is done, which is its only error.
func (m *memory) retry(ctx context.Context, message string, f func() error) error {
	backOff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 15 * time.Second}
	said := false
	return backOff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		err := f()
		if err != nil && ctx.Err() == nil && !said {
			said = true
			m.log.Warn().Err(err).Msg(message)
		}
		return err == nil, nil
	})
}
