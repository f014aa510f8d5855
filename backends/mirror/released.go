package mirror

import (
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// ReleasedKey is the annotation that gives a mirror to the hub, whatever its value: the hub
// neither changes nor deletes it from then on, and it is the hub's own, as if nobody had ever
// mirrored it. What the spoke has of that name is refused like beside any other object of the
// hub. Once the annotation is gone, the object is a mirror again.
const ReleasedKey = ownPrefix + "released"

// isReleased reports whether a mirror was given to the hub. A spoke's copy cannot be: it is
// its hub that says so.
func isReleased(o object) bool {
	_, says := o.child("metadata", "annotations")[ReleasedKey]
	return says && o.annotation(principalUIDKey) == ""
}

// isForeign reports whether an object came from the other side of a link, and was not given
// to this one.
func isForeign(o object) bool { return o.annotation(sourceUIDKey) != "" && !isReleased(o) }

// ShownBy returns the agent whose object a mirror on the hub shows; false for what is no
// mirror, or was released.
func ShownBy(fields map[string]any) (identity.AgentName, bool) {
	o := object{fields: fields}
	rec, ok := recordOf(o)
	if !ok || !isMirror(o) {
		return identity.AgentName{}, false
	}
	name, err := identity.ParseAgentName(rec.Agent)
	return name, err == nil
}

// givenAway says why a mirror that was released is not taken over again, whatever spec.adopt
// of its Agent names.
func (r Rules) givenAway(o object) *stream.Refusal {
	if !isReleased(o) {
		return nil
	}
	return &stream.Refusal{
		Kind: stream.RefusalNotOwned,
		Message: "the " + string(o.key.Kind) + " of that name on the hub was released, and is the hub's own: " +
			"rename or remove one of the two, or take its annotation " + ReleasedKey + " away",
	}
}
