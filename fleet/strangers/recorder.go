package strangers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/internal/notify"
)

// Name is that of the ConfigMap.
const Name = "argomesh-unknown-ids"

// Resource is that of ConfigMaps.
var Resource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

const (
	// interval is how far apart two writes are, no matter who knocks.
	interval = time.Minute
	// callTime bounds one write.
	callTime = 20 * time.Second
)

// Config holds what a Recorder needs. All but Log are required.
type Config struct {
	Client    dynamic.Interface
	Namespace string
	// Known reports whether an ID belongs to an Agent by now. It does not block.
	Known   func(spiffeid.ID) bool
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Recorder writes who knocked, the first time at once and then at most once a minute.
// Several may write the same ConfigMap. Its methods may be called concurrently.
type Recorder struct {
	cfg     Config
	dropped prometheus.Counter
	dirty   notify.Signal // holds one when pending has something

	mu      sync.Mutex // guards pending
	pending List       // since the last write
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Recorder, error) {
	if cfg.Client == nil || cfg.Namespace == "" || cfg.Known == nil || cfg.Metrics == nil {
		return nil, errors.New("unknown ids: client, namespace, known and metrics are required")
	}
	dropped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argomesh_unknown_ids_dropped_total",
		Help: "SPIFFE IDs without an Agent that are no longer kept, since as many newer ones came as are kept.",
	})
	return &Recorder{cfg: cfg, dropped: dropped, dirty: notify.NewSignal()}, cfg.Metrics.Register(dropped)
}

// Record counts a refusal of an ID that was proven. It does not block.
func (k *Recorder) Record(id spiffeid.ID, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at = at.UTC().Truncate(time.Second)
	k.add(List{{ID: id, Times: 1, First: at, Last: at}})
}

// add is called with mu locked.
func (k *Recorder) add(more List) {
	pending, dropped := k.pending.merge(more).newest()
	k.pending = pending
	k.dropped.Add(float64(dropped))
	k.dirty.Notify()
}

// Run writes until ctx is done. What could not be written is written with the next.
func (k *Recorder) Run(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.dirty:
		}
		if err := k.write(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn().Err(err).Msg("cannot save the list of unregistered SPIFFE IDs, retrying in a minute")
		}
		pause.Reset(interval)
	}
}

// write adds what is pending to the ConfigMap, tested on its resourceVersion.
func (k *Recorder) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	k.mu.Lock()
	added := k.pending
	k.pending = nil
	k.mu.Unlock()
	err := k.store(ctx, added)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.add(added)
	}
	return err
}

func (k *Recorder) store(ctx context.Context, added List) error {
	client := k.cfg.Client.Resource(Resource).Namespace(k.cfg.Namespace)
	have, err := client.Get(ctx, Name, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return fmt.Errorf("read ConfigMap %s: %w", Name, err)
	}
	var kept List
	if !absent {
		stored, _, err := unstructured.NestedStringMap(have.Object, "data")
		if err == nil {
			kept, err = Parse(stored)
		}
		if err != nil {
			k.cfg.Log.Warn().Err(err).Msg("cannot read the list of unregistered SPIFFE IDs, starting an empty one")
		}
	}
	kept, dropped := kept.merge(added).Without(k.cfg.Known).newest()
	data, err := kept.data()
	if err != nil {
		return fmt.Errorf("encode ConfigMap %s: %w", Name, err)
	}
	next := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": Name, "namespace": k.cfg.Namespace},
	}}
	if !absent {
		next = have.DeepCopy()
	}
	if err := unstructured.SetNestedStringMap(next.Object, data, "data"); err != nil {
		return fmt.Errorf("encode ConfigMap %s: %w", Name, err)
	}
	if absent {
		_, err = client.Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = client.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", Name, err)
	}
	k.dropped.Add(float64(dropped))
	return nil
}
