package live

import (
	"context"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/resource"
)

// maxKinds is for how many API versions the kinds of an agent's spoke are asked for, for one
// connection of the agent.
const maxKinds = 64

// Kinds has the kinds of a spoke known that the objects of its Applications are of, for the time
// when it is away: argocd-server asks for them before it asks for an object. Each API
// version is asked for once for each connection of the agent, at most maxKinds of them.
type Kinds struct {
	// Hub has the spokes' APIs; nil where there is no live access.
	Hub *resource.Hub

	mu    sync.Mutex // guards asked
	asked map[identity.AgentName]*askedKinds
}

// askedKinds are the API versions that were asked for since an agent has connected.
type askedKinds struct {
	session  string
	versions map[schema.GroupVersion]struct{}
}

// learn has those of an Application known. The session is that of its agent.
func (k *Kinds) learn(ctx context.Context, name identity.AgentName, session string, application backends.Object) {
	if k.Hub == nil {
		return
	}
	for _, v := range k.news(name, session, versionsOf(application)) {
		k.Hub.Learn(ctx, name, v.Group, v.Version)
	}
}

// news returns those that were not asked for, and takes note of them.
func (k *Kinds) news(name identity.AgentName, session string,
	versions []schema.GroupVersion) (news []schema.GroupVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.asked[name]
	if of == nil || of.session != session {
		of = &askedKinds{session: session, versions: map[schema.GroupVersion]struct{}{}}
		if k.asked == nil {
			k.asked = map[identity.AgentName]*askedKinds{}
		}
		k.asked[name] = of
	}
	for _, v := range versions {
		if _, found := of.versions[v]; !found && len(of.versions) < maxKinds {
			of.versions[v] = struct{}{}
			news = append(news, v)
		}
	}
	return news
}

// versionsOf returns of which API versions the objects of an Application are, by its status.
func versionsOf(application backends.Object) (versions []schema.GroupVersion) {
	var view struct {
		Status struct {
			Resources []struct{ Group, Version string } `json:"resources"`
		} `json:"status"`
	}
	if json.Unmarshal(application.Raw, &view) != nil {
		return nil
	}
	seen := map[schema.GroupVersion]struct{}{}
	for _, o := range view.Status.Resources {
		v := schema.GroupVersion{Group: o.Group, Version: o.Version}
		if _, found := seen[v]; !found && len(seen) < maxKinds {
			seen[v] = struct{}{}
			versions = append(versions, v)
		}
	}
	return versions
}
