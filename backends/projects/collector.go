// Package projects lets the deleting AppProjects of a hub go, which has no application
// controller to do so.
package projects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Collector lets deleting AppProjects of a hub go: they lose Argo CD's finalizers
// once no Application of the hub refers to them, which an application controller
// would do if the hub had one. It concerns the hub as a whole and no link.
type Collector struct {
	Store     backends.Store
	Namespace string // where Argo CD's AppProjects are
	Log       zerolog.Logger
}

// A pass looks at all Applications, so there is at most one in pause, and
// after a write that failed the next one comes after retry.
const (
	pause = time.Second
	retry = 5 * time.Second
)

// Run keeps at it until ctx is done.
func (p *Collector) Run(ctx context.Context) error {
	changed, cancel, synced := keyset.Follow(ctx, p.Store, stream.AppProject, stream.Application)
	defer cancel()
	if !synced {
		return nil
	}
	deleting := map[stream.ResourceKey]bool{}
	for _, o := range p.Store.List(stream.AppProject, p.Namespace) {
		deleting[o.Key] = true
	}
	next := time.NewTimer(0)
	defer next.Stop()
	waiting := true // next will fire
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed.Signal:
			for _, key := range changed.Drain() {
				if key.Kind == stream.AppProject && key.Namespace == p.Namespace {
					deleting[key] = true // perhaps; look tells
				}
			}
			if !waiting && len(deleting) > 0 {
				next.Reset(pause)
				waiting = true
			}
		case <-next.C:
			if waiting = !p.pass(ctx, deleting); waiting {
				next.Reset(retry)
			}
		}
	}
}

// pass looks at all these projects and drops those that need no further look. It
// reports whether all went well.
func (p *Collector) pass(ctx context.Context, deleting map[stream.ResourceKey]bool) bool {
	used := sync.OnceValues(p.used)
	well := true
	for key := range deleting {
		kept, err := p.release(ctx, key, used)
		if err != nil && ctx.Err() == nil {
			p.Log.Warn().Err(err).Stringer("resource", key).Msg("cannot remove the finalizers of a deleted AppProject, retrying")
			well = false
		}
		if !kept {
			delete(deleting, key)
		}
	}
	return well
}

// used returns the names of the projects to which Applications refer.
func (p *Collector) used() (map[string]bool, error) {
	names := map[string]bool{}
	for _, o := range p.Store.List(stream.Application, "") {
		app, err := object.Parse(o)
		if err != nil {
			return nil, err
		}
		if rec, _ := record.Of(app); rec.Child {
			continue // a spoke cannot keep a project of the hub by naming it
		}
		names[object.ProjectOf(app.Child("spec"))] = true
	}
	return names, nil
}

// release lets one project go if it may. It reports whether the project must be
// looked at again when an Application changes.
func (p *Collector) release(ctx context.Context, key stream.ResourceKey,
	used func() (map[string]bool, error)) (kept bool, err error) {
	cached, ok := p.Store.Get(key)
	if !ok {
		return false, nil
	}
	project, err := object.Parse(cached)
	if err != nil || !project.Deleting() {
		return false, err
	}
	next := project.Clone()
	if !next.DropFinalizers(object.IsArgoCD) {
		return false, nil
	}
	names, err := used()
	if err != nil || names[key.Name] {
		return true, err
	}
	_, err = p.Store.Update(ctx, cached, object.Encode(next.Fields))
	if errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound) {
		return true, nil // the cache will tell
	}
	if err != nil {
		return true, fmt.Errorf("remove finalizers of %s: %w", key, err)
	}
	return true, nil
}
