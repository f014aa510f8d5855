package mirror

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Rules are the ownership rules of one side of one link (design, sections 4.1
// to 4.3). Where the Applications of an agent are follows from Pairs or, by
// destination, from Namespaces. Its methods are pure.
type Rules struct {
	Side  stream.Side
	Mode  stream.Mode
	Agent identity.AgentName
	// Namespace is where Argo CD's own objects are on this side.
	Namespace string
	// Namespaces are patterns (see MatchesNamespace) of the namespaces beside Namespace
	// in which Applications of the link may be: on a spoke, and on the hub by
	// destination.
	Namespaces []string
	// Pairs are the agent's namespaces on the hub, one for each of the spoke; no hub
	// namespace is there twice. Nil means that the hub's has the agent's name and the
	// spoke's is that of Argo CD. Used on the hub, unless ByDestination.
	Pairs []NamespacePair
	// ByDestination says that an Application of the hub is the agent's by its
	// destination. The Store then has to show those alone that are: see Shares. Used on
	// the hub of a managed agent.
	ByDestination bool
	// ChildNamespace is the namespace of the hub where child applications of the spoke's
	// Argo CD namespace are shown by destination. It is the agent's alone and never
	// Namespace, where those of several agents would meet; empty for none. Used on the hub,
	// ByDestination.
	ChildNamespace string
	// Selector selects the hub's Applications that the agent may have; the others are
	// left alone as if they were not there. Nil selects all. Used on the hub of a managed
	// agent.
	Selector labels.Selector
	// ClusterServer is the server URL of the agent's cluster Secret, by which an
	// Application on the hub may name its destination. Used on the hub.
	ClusterServer string
	// ClusterProject is the project to which that Secret scopes the cluster; empty for
	// none. Used on the hub.
	ClusterProject string
	// HubUID identifies the hub whose copies a spoke holds. Used on the spoke.
	HubUID string
	// Hub identifies this hub, which its mirrors name. Empty where that is not known. Used on
	// the hub.
	Hub string
	// FormerHubs are the hubs that the agent had before HubUID. Its copies of theirs are
	// told to the hub as what the spoke holds. Used on the spoke.
	FormerHubs []string
	// Inherits says that somebody let the hub have the copies of FormerHubs; before, they
	// are neither written nor removed. Used on the spoke.
	Inherits bool
	// HistoryID names the history of the hub in which its revisions are comparable;
	// empty while it is not known, and then they are not compared.
	HistoryID string
	// Children says whether the hub shows the managed spoke's own Applications: the
	// spoke sends them, and the hub takes them, only then. A Mirror has it from the
	// handshake of its connection.
	Children bool
	// Departing says that the Agent is being deleted with a cascade: cascading
	// deletions and what confirms them pass, and nothing else leaves the hub. What is
	// not being deleted is left on the spoke as it is, changed or gone on the hub or
	// not, and so are AppProjects. Used on the hub of a managed agent.
	Departing bool
	// ProjectRoles says that mirrors of AppProjects have the roles of their originals, as
	// far as those are about the mirrors. Used on the hub of an autonomous agent.
	ProjectRoles bool
	// Longer are the other autonomous agents whose names begin with this one's and a dash:
	// a name of a project that theirs fit is not this agent's. Used on the hub of an
	// autonomous agent.
	Longer []identity.AgentName
	// SharesUnscoped says that Secrets of repositories without a project go to those
	// agents of which an Application uses them; else they go to none. Used on the hub.
	SharesUnscoped bool
	// WriteCredentials says that the spoke takes Secrets that may write to
	// repositories: the hub sends them only then. A Mirror has it from the handshake of
	// its connection. Used on the hub.
	WriteCredentials bool
	// DefaultProject says whether the spoke gets the hub's AppProject default. Used on
	// the hub of a managed agent.
	DefaultProject DefaultProject
	// GivesUp says that the spoke can give an object up. A Mirror has it from the
	// handshake of its connection. Used on the hub.
	GivesUp bool
	// Schemas says what the API server of this side keeps of a kind; one whose definition
	// is not known is not in it. A Mirror sets it.
	Schemas map[stream.Kind]*schema.Schema
	// Policy is what the owner of the spoke allows. Nil allows all that is allowed by
	// default. Used on the spoke of a managed agent.
	Policy *Policy
	// Adopt names what mirrors may adopt, as Policy.Adopt does. Used on the hub.
	Adopt []string
	// fenced says that an Application on which Argo CD acts by itself is created out of
	// reconciliation. A Mirror sets it, on the spoke of a managed agent.
	fenced bool
	// looked says that what there is was read from the API server itself. A Mirror sets it.
	looked bool
	// now is when a plan is made, by the clock of this side. A Mirror sets it.
	now time.Time
	// needed says for what a copy of an AppProject is needed. A Mirror sets it, on the spoke.
	needed projectNeed
	// projects finds an AppProject by its name; it returns nil for none. A Mirror sets it,
	// on the spoke. Nil finds none.
	projects func(name string) *object
}

// paused is how the source of c is paused; held is what the Mirror was told of all.
func (r Rules) paused(c stream.Collection, held bool) link.Paused {
	departing := r.Departing && r.Side == stream.Hub && r.Mode == stream.Managed
	return link.Paused{
		Collection:  c,
		Paused:      held || departing && c != stream.Applications,
		LeavingOnly: departing && c == stream.Applications,
	}
}

// sources reports whether this side is the source of c.
func (r Rules) sources(c stream.Collection) bool { return c.Source(r.Mode) == r.Side }

// projectPrefix is what the names of an autonomous agent's projects begin with
// on the hub.
func (r Rules) projectPrefix() string { return r.Agent.String() + "-" }

// prefixed reports whether names of projects differ between the sides.
func (r Rules) prefixed() bool { return r.Side == stream.Hub && r.Mode == stream.Autonomous }

// Keys returns the entries in which a local object has a part; none when it is
// not this link's.
func (r Rules) Keys(key stream.ResourceKey) []stream.EntryKey {
	switch {
	case key.Kind == stream.Application:
		return r.applicationKeys(key)
	case key.Kind == stream.AppProject && key.Namespace == r.Namespace:
		name := key.Name
		if r.prefixed() {
			rest, found := strings.CutPrefix(name, r.projectPrefix())
			if !found || rest == "" || r.others(name) != "" {
				return nil
			}
			name = rest
		}
		return []stream.EntryKey{{Collection: stream.AppProjects, Name: name}}
	case r.Mode != stream.Managed || key.Namespace != r.Namespace:
	case key.Kind == stream.Secret:
		return []stream.EntryKey{{Collection: stream.Repositories, Name: key.Name}}
	case key.Kind == stream.ConfigMap && slices.Contains(TrustConfigMaps(), key.Name):
		return []stream.EntryKey{{Collection: stream.Trust, Name: key.Name}}
	}
	return nil
}

// applicationKeys is Keys of an Application. By destination the namespace where children
// are shown may be one of the hub's Applications as well.
func (r Rules) applicationKeys(key stream.ResourceKey) []stream.EntryKey {
	var keys []stream.EntryKey
	namespace, ours := r.onWire(key.Namespace)
	if ours {
		keys = []stream.EntryKey{
			{Collection: stream.Applications, Namespace: namespace, Name: key.Name},
			{Collection: stream.Commands, Namespace: namespace, Name: key.Name},
			{Collection: stream.Statuses, Namespace: namespace, Name: key.Name},
		}
	}
	switch {
	case r.byDestination():
		namespace, ours = "", r.holdsChildren(key.Namespace)
	case r.Mode != stream.Managed:
		return keys
	}
	if ours {
		keys = append(keys, stream.EntryKey{Collection: stream.Children, Namespace: namespace, Name: key.Name})
	}
	return keys
}

// Local returns the object that an entry is about; false when the peer may not
// name it.
func (r Rules) Local(key stream.EntryKey) (stream.ResourceKey, bool) {
	if key.Collection.Source(r.Mode) == 0 {
		return stream.ResourceKey{}, false
	}
	switch key.Collection {
	case stream.Applications, stream.Commands, stream.Statuses, stream.Children:
		namespace, ours := r.here(key.Namespace)
		if key.Collection == stream.Children && r.byDestination() {
			// Those of several namespaces would meet in one.
			namespace, ours = r.ChildNamespace, key.Namespace == "" && r.holdsChildren(r.ChildNamespace)
		}
		if !ours {
			return stream.ResourceKey{}, false
		}
		return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: key.Name}, true
	}
	if key.Namespace != "" {
		return stream.ResourceKey{}, false
	}
	switch key.Collection {
	case stream.Repositories:
		return stream.ResourceKey{Kind: stream.Secret, Namespace: r.Namespace, Name: key.Name}, true
	case stream.Trust:
		return stream.ResourceKey{Kind: stream.ConfigMap, Namespace: r.Namespace, Name: key.Name},
			slices.Contains(TrustConfigMaps(), key.Name)
	}
	name := key.Name
	if r.prefixed() {
		name = r.projectPrefix() + name
	}
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}, true
}

// record is kept on a copy, in annotation recordKey.
type record struct {
	// Hash is the version at the source that was written.
	Hash string `json:"hash"`
	// Revision is the source's resourceVersion of that version.
	Revision uint64 `json:"revision"`
	// History is the hub's history in which Revision and Created are comparable to
	// others; empty when it was not known.
	History string `json:"history,omitempty"`
	// Created is the source's resourceVersion from which the copy was made; 1 when
	// that was in an earlier history than History.
	Created uint64 `json:"created"`
	// Agent is the one whose copy it is: the names of projects alone do not tell on the
	// hub, since one agent's prefix may begin with another's, and one Kubernetes cluster
	// may have several agents. Empty on a copy that an earlier release made on a spoke.
	Agent string `json:"agent,omitempty"`
	// Child says that the copy shows a child application.
	Child bool `json:"child,omitempty"`
	// Shaping is Rules.shaping when the copy was written.
	Shaping string `json:"shaping,omitempty"`
	// Lacks says which roles of a project its mirror has not, and why.
	Lacks []string `json:"lacks,omitempty"`
	// Adopted is the UID of the object that was there before, of which is kept what was
	// found; empty for a copy that we made, and for one that an earlier release adopted.
	Adopted string `json:"adopted,omitempty"`
	// Wrote is the hash of what was written, to tell whether someone changed it.
	Wrote string `json:"wrote"`
	// Leaving says that the deletion of source and workloads was witnessed.
	Leaving bool `json:"leaving,omitempty"`
	// Releasing says that the copy is about to go without its workloads.
	Releasing bool `json:"releasing,omitempty"`
	// Unconfirmed says that the copy was created by a process that does not know yet
	// whether it was still the one that may write. Releasing is set beside it.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Quiet says how the copy waits before it is deleted; nil for one that does not.
	Quiet *quiet `json:"quiet,omitempty"`
	// Dropped are the paths that the API server of this side did not know, sorted, and
	// Schema is the id of the schema that says so.
	// Bounds is the id of the policy that left something out of a project, which is
	// among Dropped then.
	Dropped []string `json:"dropped,omitempty"`
	Schema  string   `json:"schema,omitempty"`
	Bounds  string   `json:"bounds,omitempty"`
	// Labels and Annotations are the keys that the source owns.
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	// Items are the ids of the items of a ConfigMap that the source owns, and Found
	// those of them that were there before, the same: they are not ours to take away.
	Items []string `json:"items,omitempty"`
	Found []string `json:"found,omitempty"`
}

// hasRecord reports whether an object is a copy, which what was released no longer is.
func hasRecord(o object) bool {
	// An annotation that cannot be a UID was not written by us, and as part of a
	// version it would break the protocol.
	return stream.ValidUID(o.annotation(sourceUIDKey)) && o.annotation(recordKey) != "" && !isReleased(o)
}

// recordOf returns the record of a copy; false for an object that is none.
func recordOf(o object) (record, bool) {
	if !hasRecord(o) {
		return record{}, false
	}
	var rec record
	// A record that someone damaged counts as one that nothing matches: the object
	// is ours by its source UID, and will be written anew.
	_ = json.Unmarshal([]byte(o.annotation(recordKey)), &rec)
	return rec, true
}

// sourceUID is the UID at its source of the Application that o is or mirrors. The
// mirror of a child application has none: it is an entry of its own collection.
func (r Rules) sourceUID(o object) string {
	owner := stream.Hub
	if r.Mode == stream.Autonomous {
		owner = stream.Spoke
	}
	switch {
	case r.isChild(o) || !r.selects(o):
		return ""
	case r.Side == owner && r.isOfNeighbour(o):
		return ""
	case r.Side == owner:
		return o.uid()
	}
	if !r.isCopy(o) {
		return ""
	}
	return o.annotation(sourceUIDKey)
}

// selects reports whether a hub Application is selected. What is not a managed
// agent's always is.
func (r Rules) selects(o object) bool {
	if r.Selector == nil || r.Side != stream.Hub || r.Mode != stream.Managed || o.key.Kind != stream.Application {
		return true
	}
	set := labels.Set{}
	for key, value := range o.child("metadata", "labels") {
		set[key], _ = value.(string)
	}
	return r.Selector.Matches(set)
}

// owned is what the source owns of a copy, in canonical form: drift is a change
// of it.
func owned(o object, rec record) []byte {
	subset := func(m map[string]any, keys []string) map[string]any {
		out := map[string]any{}
		for _, key := range keys {
			if value, ok := m[key]; ok {
				out[key] = value
			}
		}
		return out
	}
	form := map[string]any{
		"labels":                 subset(o.child("metadata", "labels"), rec.Labels),
		"annotations":            subset(o.child("metadata", "annotations"), rec.Annotations),
		contentField(o.key.Kind): o.fields[contentField(o.key.Kind)],
		// A copy has no cascade finalizer until its deletion was witnessed.
		"cascade":   slices.ContainsFunc(o.finalizers(), isCascade),
		"releasing": rec.Releasing,
	}
	switch {
	case rec.Child:
		form["status"] = shown(o)
	case o.key.Kind == stream.ConfigMap:
		form["data"] = ownedTrust(o, rec)
	}
	return encode(form)
}

// contentField is the field of an object that its source owns.
func contentField(k stream.Kind) string {
	if k == stream.Secret || k == stream.ConfigMap {
		return "data"
	}
	return "spec"
}

// Reply is what the API server made of our last write of an entry. It lives in
// memory: without it an object that the API server changed is written once more.
type Reply struct {
	Version stream.Version
	// UID is that of the object: of another one by the same name it says nothing.
	UID string
	// Local is the hash of the part the source owns, as the API server returned it.
	Local stream.Hash
}

// replyOf is the Reply for a write of version v that resulted in o.
func (r Rules) replyOf(c stream.Collection, v stream.Version, o object) Reply {
	return Reply{Version: v, UID: o.uid(), Local: r.local(c, o)}
}

// local hashes what the source of c owns of o.
func (r Rules) local(c stream.Collection, o object) stream.Hash {
	if c == stream.Statuses {
		return stream.HashOf(encode(statusForm(o, bornOnSpoke(o.child("operation")))))
	}
	rec, _ := recordOf(o)
	return stream.HashOf(owned(o, rec))
}

// Held returns the version that a sink holds in o. last is the last Reply for
// the entry; nil when there is none.
func (r Rules) Held(c stream.Collection, o object, last *Reply) stream.Version {
	uid := r.uidIn(c, o)
	switch {
	case uid == "" || c == stream.Commands:
		return stream.Version{} // what was taken of commands is known to the Mirror alone
	case c == stream.Statuses && r.unsendable(o) != "":
		return stream.Version{} // it shows none
	}
	local := r.local(c, o)
	rec, _ := recordOf(o)
	if c != stream.Statuses && (rec.Releasing || rec.Leaving != o.deleting() || r.misshapen(c, rec)) {
		return stream.Version{SourceUID: uid, Hash: local} // begun but not yet done, or done by others or by other rules
	}
	if r.wants(c, o) {
		return stream.Version{SourceUID: uid, Hash: local}
	}
	if last != nil && last.UID == o.uid() && last.Local == local && (last.Version.SourceUID == uid || last.Version.Absent()) {
		return last.Version
	}
	if c != stream.Statuses && rec.Wrote == local.String() {
		if hash, err := stream.ParseHash(rec.Hash); err == nil {
			return stream.Version{SourceUID: uid, Hash: hash}
		}
	}
	return stream.Version{SourceUID: uid, Hash: local}
}

// Content returns what this side's source sends of o in collection c; false when
// nothing. asked holds the requests that o carries.
func (r Rules) Content(c stream.Collection, o object, asked Requests) (link.Content, bool) {
	if o.label(ignoreSyncKey) == "true" {
		return link.Content{}, false
	}
	content := link.Content{Revision: o.revision()}
	content.Version.SourceUID = r.uidIn(c, o)
	if content.Version.SourceUID == "" {
		return link.Content{}, false // not ours to speak of
	}
	var data map[string]any
	switch c {
	case stream.Applications:
		if r.unsendable(o) != "" {
			return link.Content{}, false
		}
		data = canonical(o, o.fields["spec"])
		if r.Side == stream.Hub && o.deleting() {
			if !o.cascades() {
				return link.Content{}, false // it goes without its workloads, or they went
			}
			content.Leaving = true
			witnessed := slices.DeleteFunc(o.finalizers(), func(f string) bool { return !isCascade(f) })
			data["leaving"] = anyList(witnessed)
			if approved(o) {
				data["approved"] = true
			}
		}
	case stream.AppProjects:
		spec := o.fields["spec"]
		if r.Side == stream.Hub {
			matches := r.shares(o.key.Name)
			if matches {
				spec, matches = r.projectFor(o)
			}
			if !matches {
				return link.Content{}, false
			}
		}
		data = canonical(o, spec)
	case stream.Repositories:
		var is bool
		if data, is = r.repository(o); !is {
			return link.Content{}, false
		}
	case stream.Trust:
		data = trust(o)
	case stream.Children:
		data = childForm(o)
	case stream.Statuses:
		data = r.status(o)
	case stream.Commands:
		if r.unsendable(o) != "" {
			return link.Content{}, false
		}
		if data = r.command(o, asked); data == nil {
			return link.Content{}, false
		}
	}
	content.Data = encode(data)
	content.Version.Hash = stream.HashOf(content.Data)
	return content, true
}

// canonical is what a source sends of an object it owns.
func canonical(o object, spec any) map[string]any {
	return map[string]any{
		"labels":      mirrored(o.child("metadata", "labels")),
		"annotations": mirrored(o.child("metadata", "annotations")),
		"spec":        spec,
	}
}

// unsendable says why an Application of the hub, in the namespace of a managed
// agent, is not the agent's; empty when it is, and for every other object.
func (r Rules) unsendable(o object) string {
	if r.Side != stream.Hub || r.Mode != stream.Managed {
		return ""
	}
	if hasRecord(o) {
		return "it is a mirror from the time when the agent was autonomous; its original is on the spoke, so remove the mirror without cascade"
	}
	if r.destined(o) {
		return ""
	}
	alias := r.alias(o)
	switch {
	case alias != AliasNone:
		return r.mend(o, alias)
	case r.byDestination():
		return "the destination names agent " + r.Agent.String() + " and a server; it may name only one of both"
	}
	return "the destination is not agent " + r.Agent.String() + ", to whose namespace the Application belongs; set destination.name to " + r.Agent.String()
}

// destined reports whether the destination of a hub Application is the agent.
func (r Rules) destined(o object) bool {
	return r.isDestination(stringAt(o.child("spec", "destination"), "name"), stringAt(o.child("spec", "destination"), "server"))
}

// isDestination reports whether a destination on the hub is the agent. As to Argo CD,
// a slash at the end of a server makes no difference.
func (r Rules) isDestination(name, server string) bool {
	if name != "" {
		return name == r.Agent.String() && server == ""
	}
	server = strings.TrimRight(server, "/")
	return server != "" && server == r.ClusterServer
}

// statusOf is an Application's status, less what we add to it on the hub. Its values
// are the Application's own.
func statusOf(o object) map[string]any {
	status := maps.Clone(o.child("status"))
	if status == nil {
		status = map[string]any{}
	}
	setConditions(status, slices.DeleteFunc(conditions(status), isOwnCondition))
	return status
}

// statusForm is the canonical form of an Application's status, and of the
// operation that was born on the spoke, if there is one.
func statusForm(o object, born map[string]any) map[string]any {
	form := map[string]any{"status": statusOf(o)}
	if born != nil {
		form["operation"] = born
	}
	return form
}

func conditions(status map[string]any) []any {
	list, _ := status["conditions"].([]any)
	return slices.Clone(list)
}

func setConditions(status map[string]any, list []any) {
	if len(list) == 0 {
		delete(status, "conditions")
		return
	}
	status["conditions"] = list
}

func isCondition(c any, kind string) bool {
	m, _ := c.(map[string]any)
	return m["type"] == kind
}

// isOwnCondition reports whether a condition is one that the hub adds.
func isOwnCondition(c any) bool {
	return isCondition(c, errorCondition) || isCondition(c, deletionCondition) || isCondition(c, warningCondition) || isCondition(c, staleCondition)
}

func hasCondition(o object, kind string) bool {
	return slices.ContainsFunc(conditions(o.child("status")), func(c any) bool { return isCondition(c, kind) })
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
