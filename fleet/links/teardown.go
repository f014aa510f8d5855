package links

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// Teardown is controller.Config.Teardown: it carries out what the deletion of an Agent
// asks for, and says what that waits for.
func (l *Links) Teardown(ctx context.Context, a v1alpha1.Agent) (waits string, err error) {
	name, err := identity.ParseAgentName(a.Name)
	if err != nil {
		return "", err
	}
	if err := Synced(l.cfg.Store); err != nil {
		return "", err
	}
	rules := l.RulesOf(name, a)
	d := departures.Teardown{Store: l.cfg.Owners().Of(rules), Rules: rules}
	if fleet.Cascades(&a) {
		if waits, err := d.Cascade(ctx, a.DeletionTimestamp.Time); err != nil || waits != "" {
			return waits, err
		}
		l.setRetired(a.UID)
	}
	if l.link(name) != nil {
		return "its link to end", nil
	}
	return d.Orphan(ctx)
}

// setRetired ends the link of an Agent that has nothing left to do.
func (l *Links) setRetired(uid types.UID) {
	l.mu.Lock()
	l.retired[uid] = true
	l.mu.Unlock()
	l.retirement.Notify()
}

// dropRetired takes the Agents whose links have retired out of agents, and forgets
// those that are gone.
func (l *Links) dropRetired(agents map[identity.AgentName]v1alpha1.Agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := map[types.UID]bool{}
	for name, a := range agents {
		there[a.UID] = true
		switch {
		case !l.retired[a.UID]:
		case a.DeletionTimestamp == nil:
			delete(l.retired, a.UID) // the hub was restored
		default:
			delete(agents, name)
		}
	}
	for uid := range l.retired {
		if !there[uid] {
			delete(l.retired, uid)
		}
	}
}
