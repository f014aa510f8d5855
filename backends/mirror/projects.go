package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Projects lets deleting AppProjects of a hub go: they lose Argo CD's finalizers
// once no Application of the hub refers to them, which an application controller
// would do if the hub had one. It concerns the hub as a whole and no link.
type Projects struct {
	Store     backends.Store
	Namespace string // where Argo CD's AppProjects are
	Log       zerolog.Logger
}

// projectRetry is the pause after a write that failed.
const projectRetry = 5 * time.Second

// Run keeps at it until ctx is done.
func (p *Projects) Run(ctx context.Context) error {
	changed := newKeySet()
	cancel := p.Store.Subscribe(changed.add)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case <-p.Store.Synced():
	}
	deleting := map[stream.ResourceKey]bool{}
	for _, o := range p.Store.List(stream.AppProject, p.Namespace) {
		deleting[o.Key] = true
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-changed.signal:
			for _, key := range changed.take() {
				if key.Kind == stream.AppProject && key.Namespace == p.Namespace {
					deleting[key] = true // perhaps; look tells
				}
			}
		}
		for key := range deleting {
			kept, err := p.look(ctx, key)
			if err != nil && ctx.Err() == nil {
				p.Log.Warn().Err(err).Stringer("resource", key).Msg("cannot let a deleting project go, trying again")
				again.Reset(projectRetry)
			}
			if !kept {
				delete(deleting, key)
			}
		}
	}
}

// look lets one project go if it may. It reports whether the project must be
// looked at again when an Application changes.
func (p *Projects) look(ctx context.Context, key stream.ResourceKey) (kept bool, err error) {
	cached, ok := p.Store.Get(key)
	if !ok {
		return false, nil
	}
	project, err := parseObject(cached)
	if err != nil || !project.deleting() {
		return false, err
	}
	next := project.clone()
	if !next.dropFinalizers(isArgoCD) {
		return false, nil
	}
	for _, o := range p.Store.List(stream.Application, "") {
		app, err := parseObject(o)
		if err != nil {
			return true, err
		}
		if stringAt(app.child("spec"), "project") == key.Name {
			return true, nil
		}
	}
	_, err = p.Store.Update(ctx, cached, encode(next.fields))
	if errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound) {
		return true, nil // the cache will tell
	}
	if err != nil {
		return true, fmt.Errorf("remove finalizers of %s: %w", key, err)
	}
	return true, nil
}
