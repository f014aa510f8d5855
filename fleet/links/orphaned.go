package links

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/identity"
)

// removeTimeout bounds one removal of orphaned mirrors; the next one removes the rest.
const removeTimeout = 30 * time.Second

// removeOrphaned removes the mirrors that are in namespaces of which their agents are not the
// owner any more, and those of AppProjects whose names belong to another agent now. It does
// nothing while no owner has changed since the last time.
func (l *Links) removeOrphaned(ctx context.Context) {
	namespaces := l.cfg.Registry.Namespaces()
	projects := l.cfg.Registry.Prefixes()
	if l.cleanedNamespaces != nil && maps.Equal(namespaces, l.cleanedNamespaces) &&
		maps.Equal(projects, l.cleanedProjects) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	agents := l.cfg.Registry.Agents()
	err := departures.OrphanedMirrors{
		Store: l.cfg.Store, Namespace: l.cfg.Namespace,
		Owner:        func(namespace string) identity.AgentName { return namespaces[namespace] },
		ProjectOwner: l.cfg.Registry.ProjectOwner,
		Registered: func(name identity.AgentName) bool {
			_, registered := agents[name]
			return registered
		},
	}.Remove(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Warn().Err(err).Msg("cannot remove mirrors from namespaces that their agents no longer have, retrying")
		return
	}
	l.cleanedNamespaces, l.cleanedProjects = namespaces, projects
}
