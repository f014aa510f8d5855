package sim

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// trustKey is the ConfigMap that all managed agents get items of.
func trustKey() stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.ConfigMap, Namespace: argocdNamespace, Name: "argocd-gpg-keys-cm"}
}

// openProject gives a hub, or a spoke, the AppProject default, which admits all
// Applications: without one none leaves a hub.
func openProject(ctx context.Context, store *memory.Store, key stream.ResourceKey) {
	_, err := store.Create(ctx, key, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"namespace":"`+key.Namespace+
		`","name":"default"},"spec":{"sourceNamespaces":["*"],"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"}]}}`))
	if err != nil {
		panic(err) // it is the first object of an empty store
	}
}

// projectOf is the one AppProject of a managed agent.
func (a Agent) projectOf() stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: argocdNamespace, Name: "project-" + a.Name}
}

func (a Agent) repositoryOf(app string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Secret, Namespace: argocdNamespace, Name: a.Name + "." + app}
}

// Items of the ConfigMap: the hub has shared ones, and a spoke its own. What a spoke's
// people write begins with local.
const (
	ownItem    = "own-"
	localValue = "local-"
)

// doKind carries out what people do with other objects than Applications.
func (w *Fleet) doKind(s *spoke, c Command) {
	side := s.side(c)
	switch c.Verb {
	case Project:
		w.write(s, c, stream.Hub, s.projectOf(), func(o application) {
			o.fields["spec"] = map[string]any{
				"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "description": s.mark(c),
				"destinations": []any{map[string]any{"name": s.admitted(c), "namespace": "*"}},
			}
		})
	case Repository:
		w.write(s, c, side, s.at(side, s.repositoryOf(c.App)), func(o application) {
			o.ensure("metadata", "labels")["argocd.argoproj.io/secret-type"] = "repository"
			o.ensure("data")["password"] = base64.StdEncoding.EncodeToString([]byte(s.mark(c)))
			if side == stream.Hub {
				o.ensure("metadata", "annotations")["mark"] = s.mark(c)
				o.ensure("data")["project"] = base64.StdEncoding.EncodeToString([]byte(s.projectOf().Name))
			}
		})
	case Trust:
		whole := c.Off && c.N%2 == 0
		off := c.Off && !whole
		c.Off = whole
		w.write(s, c, side, s.at(side, trustKey()), func(o application) {
			item, value := fmt.Sprint("item-", c.N%4), fmt.Sprint(c.N)
			if side == stream.Spoke {
				if value = localValue + value; c.N%3 > 0 {
					item = fmt.Sprint(ownItem, c.N%3)
				}
			}
			if o.ensure("data")[item] = value; off {
				delete(o.ensure("data"), item)
			}
		})
	}
}

// admitted is whom a project admits: the agent, or in one of five no one.
func (a Agent) admitted(c Command) string {
	if c.N%5 == 0 {
		return "elsewhere"
	}
	return a.Name
}

// write makes or changes an object, as the cache of anyone who writes shows it, or with Off
// deletes it. On a spoke people make no copies.
func (w *Fleet) write(s *spoke, c Command, side stream.Side, key stream.ResourceKey, do func(application)) {
	store := w.store(s, side, People)
	o, there := store.Get(key)
	var err error
	switch {
	case there && c.Off:
		err = store.Delete(w.ctx, key, backends.Preconditions{UID: o.UID})
	case there:
		object := parse(o.Raw)
		do(object)
		_, err = store.Update(w.ctx, o, object.raw())
	case !c.Off && (side == stream.Hub || key == s.at(side, trustKey())):
		object := application{map[string]any{
			"apiVersion": "v1", "kind": string(key.Kind), "metadata": map[string]any{"name": key.Name, "namespace": key.Namespace},
		}}
		do(object)
		_, err = store.Create(w.ctx, key, object.raw())
	}
	w.live(c, err)
}

// kinds are the objects of other kinds than Application, by place, as the checker
// follows them.
type kinds map[string]map[stream.ResourceKey]kindObject

type kindObject struct {
	application
	uid string
}

// take follows a change of one.
func (k kinds) take(c *checker, i int, e Entry) {
	if k[e.Place] == nil {
		k[e.Place] = map[stream.ResourceKey]kindObject{}
	}
	if strings.HasPrefix(e.Key.Name, foundSecret) {
		return // what is kept of what was found
	}
	before, was := k[e.Place][e.Key]
	after := kindObject{parse(e.Raw), e.UID}
	if k[e.Place][e.Key] = after; e.Gone {
		delete(k[e.Place], e.Key)
	}
	if e.Place == hubPlace {
		for _, v := range c.agents {
			if v.Mode != stream.Managed {
				continue
			}
			if was && (e.Gone || before.uid != e.UID) {
				v.want(i, e.Writer, before.uid, false)
			}
			k.intend(v, i, e.Writer)
		}
		c.projectMirrored(e, before, was, after)
		return
	}
	v := c.tenant(e, after.application)
	if v == nil {
		return // no one's
	}
	c.isolated(v, e)
	v.projectWanted(i, e, before, was)
	var last *object
	if was {
		last = &object{application: before.application}
	}
	c.behaves(v, e, last, &object{application: after.application})
	if e.Writer != AgentSide {
		return
	}
	c.keepsDefault(v, e)
	if source := before.sourceUID(); e.Gone && (e.Key.Kind == stream.ConfigMap || source == "" || !v.asked(v.intents[source])) {
		c.breaks("I4", v, "the agent deleted what nobody asked for: %s", e)
	}
	if diff := cmp.Diff(before.own(), after.own()); was && diff != "" {
		c.breaks("I4", v, "the agent changed what is the spoke's own: %s\n%s", e, diff)
	}
}

// own are the items of a ConfigMap that a spoke's people wrote for themselves.
func (o kindObject) own() map[string]any {
	out := map[string]any{}
	for item, value := range o.child("data") {
		if strings.HasPrefix(item, ownItem) {
			out[item] = value
		}
	}
	return out
}

// intend notes what of the hub is for an agent.
func (k kinds) intend(v *view, i int, by Writer) {
	for key, o := range k[hubPlace] {
		v.want(i, by, o.uid, k.admits(v, key, o))
	}
}

// admits reports whether an object of the hub is for an agent: its project, the Secrets of
// that, and the one ConfigMap.
func (k kinds) admits(v *view, key stream.ResourceKey, o kindObject) bool {
	project, there := k[hubPlace][v.projectOf()]
	destinations, _ := project.child("spec")["destinations"].([]any)
	admitted := there && len(destinations) == 1 && str(destinations[0].(map[string]any), "name") == v.Name
	switch key.Kind {
	case stream.AppProject:
		if key == defaultKey() {
			return v.switched[setting{setShare, stream.Hub}].on
		}
		return admitted && key == v.projectOf()
	case stream.Secret:
		return admitted && str(o.child("data"), "project") == base64.StdEncoding.EncodeToString([]byte(v.projectOf().Name))
	}
	return key == trustKey()
}

// compare is I1 and I8 for these kinds, at the end.
func (k kinds) compare(c *checker, v *view, now time.Duration) {
	if v.Mode != stream.Managed {
		k.compareRoles(c, v, now)
		return
	}
	for key, o := range k[hubPlace] {
		if !k.admits(v, key, o) {
			continue
		}
		copied, there := k[v.place()][v.at(stream.Spoke, key)]
		want, have := o.content(), copied.content()
		if key.Kind == stream.ConfigMap {
			maps.DeleteFunc(have, func(item string, _ any) bool { _, hubs := want[item]; return !hubs })
		}
		if diff := cmp.Diff(want, have); (!there || diff != "") && !c.excused(v, now, collectionOf(key.Kind), key.Name) {
			c.breaks("I1", v, "%s has not reached the spoke (-hub +spoke):\n%s", key, diff)
		}
	}
	if v.held > 0 {
		return // what is too much may be what is held back
	}
	for _, key := range slices.SortedFunc(maps.Keys(k[v.place()]), func(a, b stream.ResourceKey) int { return strings.Compare(a.Name, b.Name) }) {
		if key.Namespace != v.home() {
			continue
		}
		o := k[v.place()][key]
		key.Namespace = argocdNamespace
		hub, there := k[hubPlace][key]
		if key.Kind != stream.ConfigMap {
			if o.marks().ours(v.Name, false) && (!there || !k.admits(v, key, hub)) {
				c.breaks("I8", v, "%s is still on the spoke", key)
			}
			continue
		}
		if key != trustKey() {
			continue // what the agent remembers
		}
		for item, value := range o.child("data") {
			if hub.child("data")[item] == nil && !strings.HasPrefix(item, ownItem) && !strings.HasPrefix(fmt.Sprint(value), localValue) {
				c.breaks("I8", v, "item %s is still on the spoke", item)
			}
		}
	}
}

// collectionOf is where objects of a kind are entries.
func collectionOf(kind stream.Kind) stream.Collection {
	return map[stream.Kind]stream.Collection{
		stream.AppProject: stream.AppProjects, stream.Secret: stream.Repositories, stream.ConfigMap: stream.Trust,
	}[kind]
}

// content is what must be equal on both sides.
func (o kindObject) content() map[string]any {
	out := map[string]any{}
	maps.Copy(out, o.child("data"))
	if spec := o.child("spec"); spec != nil {
		out["description"] = spec["description"]
	}
	return out
}
