package access

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TrackingAnnotation is where Argo CD says which Application an object belongs to:
// "<application>:<group>/<kind>:<namespace>/<name>", of the object itself.
const TrackingAnnotation = "argocd.argoproj.io/tracking-id"

// Bounds of one look for an owner that is tracked.
const (
	// maxDepth is how many owners may be between an object and the tracked one. A pod
	// of a CronJob has two.
	maxDepth = 5
	// maxLookups is how many objects are read in all.
	maxLookups = 16
)

// Tracks reports whether an Argo CD Application tracks the object: its tracking
// annotation names an Application and this very object, or, when label is not
// empty, that label has a value. An annotation that names another object was copied
// by a controller and says nothing. The object needs kind, API version and metadata.
func Tracks(object *metav1.PartialObjectMetadata, label string) bool {
	if label != "" && object.Labels[label] != "" {
		return true
	}
	application, rest, _ := strings.Cut(object.Annotations[TrackingAnnotation], ":")
	groupKind, place, found := strings.Cut(rest, ":")
	if application == "" || !found {
		return false
	}
	group, kind, _ := strings.Cut(groupKind, "/")
	namespace, name, _ := strings.Cut(place, "/")
	is := object.GroupVersionKind()
	// What has no namespace is tracked with that of the Application's destination.
	return group == is.Group && kind == is.Kind && name == object.Name &&
		(object.Namespace == "" || namespace == object.Namespace)
}

// Objects reads the metadata of a spoke's objects, with kind and API version, as the
// API server has them now. An error that is an API server's own, such as NotFound,
// is returned as it is or wrapped.
type Objects interface {
	// Object reads one object; the namespace is empty for what has none.
	Object(ctx context.Context, resource schema.GroupVersionResource,
		name types.NamespacedName) (*metav1.PartialObjectMetadata, error)
	// Owner reads what a reference in an object of that namespace names. Its scope is
	// that of its kind. An object of the same name with another UID is its caller's
	// to find out.
	Owner(ctx context.Context, namespace string, reference metav1.OwnerReference) (*metav1.PartialObjectMetadata, error)
}

// Tracker finds out whether the object of a call is tracked. It is not changed while
// in use, and Check may be called concurrently if Objects may.
type Tracker struct {
	Objects Objects
	// Label is the label by which Argo CD tracks, where it does that: its setting
	// application.instanceLabelKey. Empty, the default, is right for the annotation;
	// Helm charts set app.kubernetes.io/instance without any Argo CD.
	Label string
}

// Check returns d, a Decision that allows the call, or its refusal when the object
// is not tracked and belongs, by its owners, to none that is. It looks at no more
// than 16 objects, up to 5 owners away, and each must have the UID by which it is
// named. The error is what Objects answered about the object itself: of one that is
// not there NotFound, so that nothing is made, by a server-side apply, that could
// not be checked.
func (t *Tracker) Check(ctx context.Context, d Decision) (Decision, error) {
	if !d.Allowed {
		return d, nil
	}
	r := d.request
	if r.Name == "" {
		return t.refuse(d, "the call names no object"), nil
	}
	name := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	if r.Group == "" && r.Resource == segmentNamespaces {
		name.Namespace = "" // the path of a namespace says it is inside itself
	}
	object, err := t.Objects.Object(ctx, r.GroupVersionResource(), name)
	if err != nil {
		return Decision{}, fmt.Errorf("look up what the call is about: %w", err)
	}
	tracked, unread := t.tracked(ctx, object)
	switch {
	case tracked:
	case ctx.Err() != nil:
		return Decision{}, ctx.Err()
	case unread > 0:
		return t.refuse(d,
			"its owners could not all be read, so it is unknown whether an Argo CD Application tracks the object"), nil
	default:
		return t.refuse(d, "no Argo CD Application tracks the object or one of its owners"), nil
	}
	return d, nil
}

func (t *Tracker) refuse(d Decision, why string) Decision {
	return Decision{Side: Spoke, Rule: RuleTrackedOnly, request: d.request, Message: refusal(Spoke, RuleTrackedOnly, why)}
}

// tracked looks at object and its owners, nearest first. When none is tracked, it
// says how many of them could not be read.
func (t *Tracker) tracked(ctx context.Context, object *metav1.PartialObjectMetadata) (tracked bool, unread int) {
	type step struct {
		object *metav1.PartialObjectMetadata
		depth  int
	}
	seen := map[types.UID]bool{object.UID: true}
	lookups := 1
	for queue := []step{{object, 0}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if Tracks(at.object, t.Label) {
			return true, 0
		}
		if at.depth == maxDepth {
			continue
		}
		for _, reference := range at.object.OwnerReferences {
			if seen[reference.UID] || lookups == maxLookups {
				continue
			}
			seen[reference.UID] = true
			lookups++
			owner, err := t.Objects.Owner(ctx, at.object.Namespace, reference)
			switch {
			case apierrors.IsNotFound(err): // it is about to be collected
			case err != nil:
				unread++ // another owner may do
			case owner.UID == reference.UID:
				queue = append(queue, step{owner, at.depth + 1})
			}
		}
	}
	return false, unread
}

// isEventsOf reports whether r reads events of one object, which are of no one's
// Application.
func isEventsOf(r Request) bool {
	if r.Resource != "events" || (r.Group != "" && r.Group != "events.k8s.io") ||
		(r.Verb != "list" && r.Verb != verbWatch) {
		return false
	}
	selector, err := fields.ParseSelector(r.FieldSelector)
	if err != nil {
		return false
	}
	for _, field := range []string{"involvedObject.uid", "involvedObject.name", "regarding.uid", "regarding.name"} {
		if value, found := selector.RequiresExactMatch(field); found && value != "" {
			return true
		}
	}
	return false
}
