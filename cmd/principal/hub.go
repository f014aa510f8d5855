package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/fleet/hub"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// hubState is what the hub has decided once, known from when Run could read it.
type hubState struct {
	keeper hub.Keeper
	log    zerolog.Logger
	// decided is called once kept is set, before anybody is told.
	decided func(hub.Hub)
	known   chan struct{} // closed once kept is set
	kept    hub.Hub
}

func newHubState(cfg principalconfig.Config, client dynamic.Interface, decided func(hub.Hub), log zerolog.Logger) *hubState {
	return &hubState{
		keeper:  hub.Keeper{Client: client, Namespace: cfg.Namespace, ShareDefault: cfg.Projects.ShareDefault, Mapping: hub.Mapping(cfg.Mapping.By)},
		decided: decided, log: log, known: make(chan struct{}),
	}
}

// Run asks until the API server answers, and then whether the mapping is still the one that
// this process goes by, until ctx is done. Once it is not, the error wraps
// process.ErrAgain: whose everything is has changed, and is looked at as after a start.
func (h *hubState) Run(ctx context.Context) error {
	err := retry(ctx, h.log, "cannot read what the hub has decided", func() (err error) {
		h.kept, err = h.keeper.Keep(ctx)
		return err
	})
	if err != nil {
		return nil //nolint:nilerr // ctx is done
	}
	h.log.Info().Str("default_project", string(h.kept.DefaultProject)).Str("mapping", string(h.kept.Mapping)).Msg("the identity of the hub is known")
	if asked := h.keeper.Mapping; asked != "" && asked != h.kept.Mapping {
		h.log.Warn().Str("mapping.by", string(asked)).Str("mapping", string(h.kept.Mapping)).
			Msg("mapping.by is not the mapping of this hub, which stays in force: see docs/mapping.md")
	}
	h.decided(h.kept)
	close(h.known)
	return h.follow(ctx)
}

// followInterval is how often the mapping in force is looked at.
const followInterval = 5 * time.Second

// follow returns when another mapping is in force. What cannot be read changes nothing.
func (h *hubState) follow(ctx context.Context) error {
	again := time.NewTicker(followInterval)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		now, err := h.keeper.Read(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			h.log.Debug().Err(err).Msg("cannot read which mapping is in force")
		case err == nil && now.Mapping != "" && now.Mapping != h.kept.Mapping:
			return fmt.Errorf("the hub maps by %s now, and did by %s: %w", now.Mapping, h.kept.Mapping, process.ErrAgain)
		}
	}
}

// keepVersion has the hub say of which release this principal is.
func (h *hubState) keepVersion(ctx context.Context, version string) error {
	_ = retry(ctx, h.log, "cannot write the principal's version", func() error { return h.keeper.KeepVersion(ctx, version) }) // else ctx is done
	return nil
}

// wait returns what is known once it is; false when ctx was done first.
func (h *hubState) wait(ctx context.Context) (hub.Hub, bool) {
	select {
	case <-h.known:
		return h.kept, true
	case <-ctx.Done():
		return hub.Hub{}, false
	}
}

// then runs a part from when it is known.
func (h *hubState) then(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, known := h.wait(ctx); !known {
			return nil
		}
		return run(ctx)
	}
}

// now returns what is known; false for nothing yet.
func (h *hubState) now() (hub.Hub, bool) {
	select {
	case <-h.known:
		return h.kept, true
	default:
		return hub.Hub{}, false
	}
}

// namespaceInterval is how often the namespace of an agent is looked at.
const namespaceInterval = 5 * time.Minute

// keepNamespace makes the hub namespace of an agent whenever it is missing, until
// ctx is done.
func keepNamespace(ctx context.Context, client dynamic.Interface, name string, log zerolog.Logger) {
	again := time.NewTicker(namespaceInterval)
	defer again.Stop()
	for {
		ensureNamespace(ctx, client, name, log)
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// ensureNamespace tries until the namespace is there or ctx is done.
func ensureNamespace(ctx context.Context, client dynamic.Interface, name string, log zerolog.Logger) {
	_ = retry(ctx, log, "cannot make the namespace of an agent", func() error {
		all := client.Resource(namespaces)
		there, err := all.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && there.GetDeletionTimestamp() != nil:
			return fmt.Errorf("namespace %s is being deleted", name) // then it is made anew
		case err == nil || !apierrors.IsNotFound(err):
			return err
		}
		ns := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/part-of": "argomesh"}},
		}}
		if _, err := all.Create(ctx, ns, metav1.CreateOptions{FieldManager: "argomesh-principal"}); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}) // its only error is that ctx is done
}

// retry calls f until it succeeds or ctx is done, logging the first failure of
// each kind.
func retry(ctx context.Context, log zerolog.Logger, message string, f func() error) error {
	backOff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}
	last := ""
	return backOff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		err := f()
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			log.Warn().Err(err).Msg(message)
		}
		return false, nil
	})
}
