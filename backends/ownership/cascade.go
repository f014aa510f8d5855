package ownership

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Uncascaded says why the workloads of a copy that is gone may be there still; nil when
// there is no reason to think so. project is its AppProject on the spoke, if there is one.
func Uncascaded(last object.Object, project *object.Object) *stream.Refusal {
	rec, copied := record.Of(last)
	switch {
	case !copied || !rec.Leaving || !last.Cascades():
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
				project.Key.Name),
		}
	}
	return nil
}

// fruitless refuses a deletion that Argo CD would carry out without any effect.
func fruitless(o object.Object, project *object.Object) *stream.Refusal {
	if !permitsNone(project, o) {
		return nil
	}
	return &stream.Refusal{
		Kind: stream.RefusalDenied,
		Message: fmt.Sprintf("AppProject %s of the spoke permits none of its resources, so Argo CD would delete the Application and leave its workloads: "+
			"let the project permit them, or keep them with agentctl agent keep-workloads", project.Key.Name),
	}
}

// permitsNone reports whether a project is known to permit none of the resources that an
// Application has on the spoke.
func permitsNone(project *object.Object, o object.Object) bool {
	if project == nil {
		return false // Argo CD waits for it
	}
	clusterWide, _ := project.Child("spec")["clusterResourceWhitelist"].([]any)
	resources, _ := o.Child("status")["resources"].([]any)
	some := false
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		if health, _ := resource["health"].(map[string]any); object.StringAt(health, "status") == "Missing" {
			continue // it is in git alone
		}
		some = true
		namespace := object.StringAt(resource, "namespace")
		if namespace == "" && len(clusterWide) > 0 || namespace != "" && permits(*project, namespace) {
			return false
		}
	}
	return some
}

// permits reports whether a project may permit a namespace of the spoke's own cluster. The
// rules are Argo CD's (AppProject.IsDestinationPermitted); a destination that has a name
// alone may be the spoke's cluster by another name.
func permits(project object.Object, namespace string) bool {
	destinations, _ := project.Child("spec")["destinations"].([]any)
	permitted := false
	for _, d := range destinations {
		destination, _ := d.(map[string]any)
		name, server := object.StringAt(destination, "name"), object.StringAt(destination, "server")
		here := glob.MatchesDestination(server, object.InClusterServer)
		named := glob.MatchesDestination(name, object.InClusterName) ||
			server == "" && name != "" && !strings.HasPrefix(name, "!")
		within := glob.MatchesDestination(object.StringAt(destination, "namespace"), namespace)
		switch {
		case (here || named) && within:
			permitted = true
		case !named && strings.HasPrefix(name, "!"), !here && strings.HasPrefix(server, "!") && within,
			!within && strings.HasPrefix(object.StringAt(destination, "namespace"), "!") && here:
			return false
		}
	}
	return permitted
}

// Leaving reports whether an event asks for the end of an Application and its workloads,
// or holds that word.
func Leaving(e stream.Event) bool {
	return e.Key.Collection == stream.Applications && e.Verb == stream.Apply &&
		bytes.Contains(e.Data, []byte(`"leaving":[`))
}

// EndUnknown is the answer to a deletion of which nothing is left, as long as the watch has
// not said how that ended.
var EndUnknown = stream.Refusal{
	Kind: stream.RefusalUnavailable, Message: "the spoke has not yet seen how its copy ended",
}

// KeepWorkloadsKey is the annotation that lets an Application of the hub, which is being
// deleted with its workloads, go without them, if it has the value true. What a spoke
// has begun to delete it does not call back.
const KeepWorkloadsKey = object.OwnPrefix + "keep-workloads"

// TakesWorkloads reports whether Argo CD deletes the workloads of an Application that has
// this finalizer.
func TakesWorkloads(finalizer string) bool { return object.IsCascade(finalizer) }

// KeepsWorkloads reports whether an Application that would take its workloads along is to
// leave them.
func KeepsWorkloads(o object.Object) bool {
	return o.Cascades() && o.Annotation(KeepWorkloadsKey) == "true"
}

// TimeOf is a time of an object's metadata; the epoch when there is none, which is long
// ago and no zero time.
func TimeOf(o object.Object, name string) time.Time {
	t, err := time.Parse(time.RFC3339, o.Meta(name))
	if err != nil {
		return time.Unix(0, 0)
	}
	return t
}
