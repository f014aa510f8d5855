package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/util/wait"
)

// State is what the hub has decided once, known from when Run could read it.
type State struct {
	Store Store
	log   zerolog.Logger
	// decided is called once hub is set, before anyone is notified.
	decided func(Hub)
	known   chan struct{} // closed once hub is set
	hub     Hub
}

// NewState calls decided with what the hub has decided, before anyone else is notified.
func NewState(store Store, decided func(Hub), log zerolog.Logger) *State {
	return &State{Store: store, decided: decided, log: log, known: make(chan struct{})}
}

// ErrRemapped is wrapped when another mapping is in force than the one that the process
// goes by.
var ErrRemapped = errors.New("the mapping of the hub has changed")

// Run asks until the API server answers, and then whether the mapping is still the one that
// this process goes by, until ctx is done. Once it is not, the error wraps
// ErrRemapped: whose everything is has changed, and is looked at as after a start.
func (h *State) Run(ctx context.Context) error {
	err := Retry(ctx, h.log, "cannot read what the hub has decided, retrying", func() (err error) {
		h.hub, err = h.Store.Ensure(ctx)
		return err
	})
	if err != nil {
		return nil //nolint:nilerr // ctx is done
	}
	h.log.Info().Str("default_project", string(h.hub.DefaultProject)).Str("mapping", string(h.hub.Mapping)).
		Msg("the identity of the hub is known")
	if asked := h.Store.Mapping; asked != "" && asked != h.hub.Mapping {
		h.log.Warn().Str("mapping.by", string(asked)).Str("mapping", string(h.hub.Mapping)).
			Msg("mapping.by differs from the mapping of this hub, which stays in force; see docs/mapping.md")
	}
	h.decided(h.hub)
	close(h.known)
	return h.follow(ctx)
}

// followInterval is how often the mapping in force is looked at.
const followInterval = 5 * time.Second

// follow returns when another mapping is in force. What cannot be read changes nothing.
func (h *State) follow(ctx context.Context) error {
	again := time.NewTicker(followInterval)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		now, err := h.Store.Read(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			h.log.Debug().Err(err).Msg("cannot read which mapping is in force")
		case err == nil && now.Mapping != "" && now.Mapping != h.hub.Mapping:
			return fmt.Errorf("%w: it maps by %s now, and did by %s", ErrRemapped, now.Mapping, h.hub.Mapping)
		}
	}
}

// SaveVersion has the hub say of which release this principal is.
func (h *State) SaveVersion(ctx context.Context, version string) error {
	// else ctx is done
	_ = Retry(ctx, h.log, "cannot write the principal's version, retrying",
		func() error { return h.Store.SaveVersion(ctx, version) })
	return nil
}

// Wait returns what is known once it is; false when ctx was done first.
func (h *State) Wait(ctx context.Context) (Hub, bool) {
	select {
	case <-h.known:
		return h.hub, true
	case <-ctx.Done():
		return Hub{}, false
	}
}

// Then runs a part from when it is known.
func (h *State) Then(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, known := h.Wait(ctx); !known {
			return nil
		}
		return run(ctx)
	}
}

// Now returns what is known; false for nothing yet.
func (h *State) Now() (Hub, bool) {
	select {
	case <-h.known:
		return h.hub, true
	default:
		return Hub{}, false
	}
}

// Retry calls f until it succeeds or ctx is done, logging the first failure of
// each kind.
func Retry(ctx context.Context, log zerolog.Logger, message string, f func() error) error {
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
