package mirror

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// When Argo CD has deleted the workloads of an Application it takes the cascade finalizer
// away, and then goes on with the delete hooks, if there are any: so the last state of a
// copy with hooks is one without cascade finalizer. One that is gone from another state
// was not deleted as it was meant to be. The same holds of one whose AppProject permitted
// none of its resources, since Argo CD deletes only what is permitted.
//
// Of a copy that is gone nothing is left to tell. So the spoke has its last state from the
// watch that said that it is gone, and remembers such an end for as long as it runs. That
// is told to the hub, and its Application keeps the condition. What a spoke cannot know,
// since it did not watch then, it takes for done: else a person would have to look at each
// deletion that came to its end while an agent was restarted.

// uncascaded says why the workloads of a copy that is gone may be there still; nil when
// there is no reason to think so. project is its AppProject on the spoke, if there is one.
func uncascaded(last object, project *object) *stream.Refusal {
	rec, copied := recordOf(last)
	switch {
	case !copied || !rec.Leaving || !last.cascades():
		return nil
	case hooked(last):
		return &stream.Refusal{
			Kind:    stream.RefusalNotCascaded,
			Message: "its copy was gone while Argo CD had neither its workloads nor its delete hooks done",
		}
	case permitsNone(project, last):
		return &stream.Refusal{
			Kind: stream.RefusalNotCascaded,
			Message: fmt.Sprintf("when its copy was gone, AppProject %s of the spoke permitted none of its resources, so Argo CD deleted none of them",
				project.key.Name),
		}
	}
	return nil
}

// fruitless refuses a deletion that Argo CD would carry out without any effect.
func fruitless(o object, project *object) *stream.Refusal {
	if !permitsNone(project, o) {
		return nil
	}
	return &stream.Refusal{
		Kind: stream.RefusalDenied,
		Message: fmt.Sprintf("AppProject %s of the spoke permits none of its resources, so Argo CD would delete the Application and leave its workloads: "+
			"let the project permit them, or keep them with agentctl agent keep-workloads", project.key.Name),
	}
}

// permitsNone reports whether a project is known to permit none of the resources that an
// Application has on the spoke.
func permitsNone(project *object, o object) bool {
	if project == nil {
		return false // Argo CD waits for it
	}
	clusterWide, _ := project.child("spec")["clusterResourceWhitelist"].([]any)
	resources, _ := o.child("status")["resources"].([]any)
	some := false
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		if health, _ := resource["health"].(map[string]any); stringAt(health, "status") == "Missing" {
			continue // it is in git alone
		}
		some = true
		namespace := stringAt(resource, "namespace")
		if namespace == "" && len(clusterWide) > 0 || namespace != "" && permits(*project, namespace) {
			return false
		}
	}
	return some
}

// permits reports whether a project may permit a namespace of the spoke's own cluster. The
// rules are Argo CD's (AppProject.IsDestinationPermitted); a destination that has a name
// alone may be the spoke's cluster by another name.
func permits(project object, namespace string) bool {
	destinations, _ := project.child("spec")["destinations"].([]any)
	permitted := false
	for _, d := range destinations {
		destination, _ := d.(map[string]any)
		name, server := stringAt(destination, "name"), stringAt(destination, "server")
		here := matchesDestination(server, inClusterServer)
		named := matchesDestination(name, inClusterName) || server == "" && name != "" && !strings.HasPrefix(name, "!")
		within := matchesDestination(stringAt(destination, "namespace"), namespace)
		switch {
		case (here || named) && within:
			permitted = true
		case !named && strings.HasPrefix(name, "!"), !here && strings.HasPrefix(server, "!") && within,
			!within && strings.HasPrefix(stringAt(destination, "namespace"), "!") && here:
			return false
		}
	}
	return permitted
}

// matchesDestination matches as Argo CD does: "!" stands for all others.
func matchesDestination(pattern, value string) bool {
	if denied, found := strings.CutPrefix(pattern, "!"); found {
		return !globMatches(denied, value)
	}
	return globMatches(pattern, value)
}

// leaving reports whether an event asks for the end of an Application and its workloads,
// or holds that word.
func leaving(e stream.Event) bool {
	return e.Key.Collection == stream.Applications && e.Verb == stream.Apply && bytes.Contains(e.Data, []byte(`"leaving":[`))
}

// ends remembers how copies of a spoke ended, if not as they were meant to.
type ends struct {
	mu    sync.Mutex                // guards what follows
	known map[string]stream.Refusal // by the UID of the source's object
}

// maxEnds bounds what is remembered. There are more only if somebody takes the finalizers
// of a great many copies away. Of one beyond nothing is told to the hub, and it is counted.
const maxEnds = 1 << 14

// seeEnd takes what a watch said of the end of an object. It does not block.
func (m *Mirror) seeEnd(d backends.Deletion) {
	if d.Last.Key.Kind != stream.Application || !bytes.Contains(d.Last.Raw, []byte("deletionTimestamp")) {
		return
	}
	last, err := parseObject(d.Last)
	if err != nil {
		return
	}
	end := uncascaded(last, m.projectNamed(projectOf(last.child("spec"))))
	if end == nil {
		return
	}
	m.log.Warn().Stringer("resource", last.key).Str("reason", end.Message).Msg("application is gone and its workloads may not be")
	if !m.ends.note(last.annotation(sourceUIDKey), *end) {
		m.cfg.Metrics.lostEnd()
	}
}

// note remembers how the copy of a source's object ended. It reports whether there was
// room.
func (e *ends) note(uid string, end stream.Refusal) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.known[uid]; !known && len(e.known) == maxEnds {
		return false
	}
	e.known[uid] = end
	return true
}

// projectNamed is the AppProject of that name; nil when there is none.
func (m *Mirror) projectNamed(name string) *object {
	stored, found := m.cfg.Store.Get(stream.ResourceKey{Kind: stream.AppProject, Namespace: m.cfg.Rules.Namespace, Name: name})
	if !found {
		return nil
	}
	project, err := parseObject(stored)
	if err != nil {
		return nil
	}
	return &project
}

// unseen is the answer to a deletion of which nothing is left, as long as the watch has
// not said how that ended.
var unseen = stream.Refusal{Kind: stream.RefusalUnavailable, Message: "the spoke has not yet seen how its copy ended"}

// ended is the answer to a leaving event of whose copy nothing is left; nil when it went
// as it should.
func (m *Mirror) ended(key stream.ResourceKey, e stream.Event) *stream.Refusal {
	if stored, found := m.cfg.Store.Get(key); found {
		if o, err := parseObject(stored); err == nil && hasRecord(o) && o.annotation(sourceUIDKey) == e.Version.SourceUID {
			return &unseen
		}
	}
	m.ends.mu.Lock()
	defer m.ends.mu.Unlock()
	if end, known := m.ends.known[e.Version.SourceUID]; known {
		return &end
	}
	return nil
}
