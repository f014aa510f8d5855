package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// historyConfigMap keeps what the spoke saw last of its hub's history. A spoke that
// is rebuilt has none, and one that is restored has an older one: so the hub can
// tell what is missing from what was deleted.
const historyConfigMap = agentconfig.Name

// Keys of its data.
const (
	hubKey      = agentconfig.HubKey
	idKey       = "id"
	tokenKey    = "token"
	revisionKey = "revision"
	formerKey   = "former"
	// operationsKey is the policy.operations of before there was override: see
	// historyRecord.inherit. It is there, and mostly empty, once a release has looked that knows it.
	operationsKey = "operations"
)

// maxFormerHubs bounds how many hubs before the present one are remembered: copies of
// earlier ones stay, and are no one's.
const maxFormerHubs = 8

// historyStore is what the spoke keeps of its hub's history. It is read by quorum each time:
// the spoke's etcd may be restored while this process lives.
type historyStore struct {
	client    dynamic.Interface
	namespace string
	// budget is what the hub may have us write, of which what is kept of it is a part; nil
	// for none.
	budget *budget.Peer
	log    zerolog.Logger

	mu     sync.Mutex // guards what follows
	known  bool       // record was read, or written
	record historyRecord
	reset  notify.Broadcast // closed when the spoke turns out not to keep what it did
}

func newHistoryStore(client dynamic.Interface, namespace string, b *budget.Peer, log zerolog.Logger) *historyStore {
	return &historyStore{client: client, namespace: namespace, budget: b, log: log}
}

// historyRecord is what the ConfigMap says. The zero value says nothing.
type historyRecord struct {
	hub     string
	history stream.History
	former  []string // hubs whose copies hub inherited, newest first
	// operations is operationsKey; nil when no release has looked that knows it.
	operations *string
}

// before are the hubs before a hub, newest first.
func (k historyRecord) before(hub string) []string {
	former := slices.Clone(k.former)
	if k.hub != "" && k.hub != hub {
		former = slices.Insert(former, 0, k.hub)
	}
	former = slices.DeleteFunc(former, func(other string) bool { return other == hub })
	return former[:min(len(former), maxFormerHubs)]
}

// begin forgets what this process knows: another one may have kept something since.
func (m *historyStore) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.record = false, historyRecord{}
}

// forHello is client.Config.History.
func (m *historyStore) forHello(ctx context.Context) (hub string, h stream.History, err error) {
	now, _, err := m.read(ctx)
	if err != nil {
		return "", stream.History{}, fmt.Errorf("read what is kept of the hub's history: %w", err)
	}
	if m.isLost(now) {
		m.markLost()
	}
	m.set(now)
	return now.hub, now.history, nil
}

// during returns a context that ends with ctx, or when the spoke turns out not to keep
// what it did: what a connection of before has shown is not true any more.
func (m *historyStore) during(ctx context.Context) (until context.Context, stop func()) {
	m.mu.Lock()
	lost := m.reset.Next()
	m.mu.Unlock()
	ending, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lost:
			cancel(mirror.ErrForgotten)
		case <-ending.Done():
		}
	}()
	return ending, func() { cancel(nil) }
}

func (m *historyStore) markLost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reset.Notify()
}

// save is mirror.Config.SaveHistory. It refuses what is older than what is kept,
// of the same history: the proof that the hub was further must not be lost. Neither must
// the proof that the spoke was restored, which is that it keeps something else than it
// did.
func (m *historyStore) save(ctx context.Context, hub string, h stream.History) error {
	return m.retry(ctx, "cannot save what the hub says of its history, retrying", func() (final bool, err error) {
		now, version, err := m.read(ctx)
		switch {
		case err != nil:
			return false, err
		case now.hub == hub && now.history.Token == h.Token:
			m.set(now) // of an earlier connection, or the reply to the write was lost
			return true, nil
		case m.isLost(now):
			return true, mirror.ErrForgotten
		case now.hub == hub && now.history.ID == h.ID && now.history.Revision > h.Revision:
			return true, fmt.Errorf("the hub was at revision %d before: a newer token is kept", now.history.Revision)
		}
		next := historyRecord{hub, h, now.before(hub), now.operations}
		if version == "" {
			next.operations = new(string) // from here on no list is of before
		}
		if err := m.write(ctx, next, version); err != nil {
			return false, err
		}
		m.set(next)
		return true, nil
	})
}

// read returns what is kept, and the resourceVersion of the ConfigMap; empty for none.
func (m *historyStore) read(ctx context.Context) (k historyRecord, version string, err error) {
	cm, err := m.client.Resource(configMaps).Namespace(m.namespace).Get(ctx, historyConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return historyRecord{}, "", nil
	}
	if err != nil {
		return historyRecord{}, "", err
	}
	data, _, err := unstructured.NestedStringMap(cm.Object, "data")
	if err != nil {
		data = nil // damaged, as if it was not there: the hub will ask a person
	}
	revision, err := strconv.ParseUint(data[revisionKey], 10, 64)
	if err != nil {
		revision = 0
	}
	history := stream.History{ID: data[idKey], Token: data[tokenKey], Revision: revision}
	var former []string
	if json.Unmarshal([]byte(data[formerKey]), &former) != nil {
		former = nil // as above, or there were none before a release that keeps them
	}
	k = historyRecord{hub: data[hubKey], history: history, former: former}
	if operations, there := data[operationsKey]; there {
		k.operations = &operations
	}
	return k, cm.GetResourceVersion(), nil
}

// write keeps k in place of what was read at that version.
func (m *historyStore) write(ctx context.Context, k historyRecord, version string) error {
	former, err := json.Marshal(k.former)
	if err != nil {
		return err
	}
	metadata := map[string]any{
		"name": historyConfigMap, "namespace": m.namespace,
		"labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"},
	}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	data := map[string]any{
		hubKey: k.hub, idKey: k.history.ID, tokenKey: k.history.Token,
		revisionKey: strconv.FormatUint(k.history.Revision, 10), formerKey: string(former),
	}
	if k.operations != nil {
		data[operationsKey] = *k.operations
	}
	cm := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
		"data": data}}
	granted, err := m.afford(ctx, data)
	if err != nil {
		return err
	}
	now, err := m.client.Resource(configMaps).Namespace(m.namespace).Apply(ctx, historyConfigMap, cm,
		metav1.ApplyOptions{FieldManager: agentconfig.Name, Force: true})
	m.countWrite(granted, now, err)
	return err
}

// afford waits until the hub's budget has room for a write of data, and takes it: a hub that
// has a new history without end is as bound as one that has new objects.
func (m *historyStore) afford(ctx context.Context, data map[string]any) (granted int, err error) {
	if m.budget == nil {
		return 0, nil
	}
	text, err := json.Marshal(data)
	if err != nil {
		return 0, err
	}
	for {
		over, pause := m.budget.Acquire(time.Now(), len(text))
		if over == budget.OverNothing {
			return len(text), nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
	}
}

// countWrite counts what the API server has written, as it answered it: nothing when it did not.
func (m *historyStore) countWrite(granted int, now *unstructured.Unstructured, err error) {
	if m.budget == nil {
		return
	}
	writes, bytes := 0, 0
	if err == nil {
		if text, jerr := now.MarshalJSON(); jerr == nil {
			writes, bytes = 1, len(text)
		}
	} else if !apierrors.IsConflict(err) {
		writes, bytes = 1, granted // the answer may be what was lost
	}
	m.budget.Charge(time.Now(), granted, writes, bytes)
}

func (m *historyStore) set(now historyRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.record = true, now
}

// isLost reports whether the spoke does not keep what it did when this process last
// looked.
func (m *historyStore) isLost(now historyRecord) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known && (now.hub != m.record.hub || now.history != m.record.history)
}

// formerHubs are those that the agent had before hub, newest first, and whether hub
// inherits what it had written for them: it does once its history is kept here.
func (m *historyStore) formerHubs(hub string) (former []string, inherits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.before(hub), m.record.hub == hub
}

// retry calls f until it succeeds, or says that its error is final, or ctx is done.
func (m *historyStore) retry(ctx context.Context, message string, f func() (final bool, err error)) error {
	backOff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 15 * time.Second}
	logged := false
	return backOff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		final, err := f()
		if final || err == nil {
			return true, err
		}
		if ctx.Err() == nil && !logged {
			logged = true
			m.log.Warn().Err(err).Msg(message)
		}
		return false, nil
	})
}
