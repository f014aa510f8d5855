package ownership

import (
	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// reform brings what an earlier release wrote into the typed form; false when it is in it, or
// someone has changed it since: then its source sends it again.
func reform(r Rules, o object.Object) ([]byte, bool) {
	if o.Key.Kind != stream.Application || o.Deleting() || !r.IsOwnMirror(o) {
		return nil, false
	}
	rec, _ := record.Of(o)
	if appspec.IsTyped(o.Child("spec")) || rec.Wrote != stream.HashOf(owned(o, rec)).String() {
		return nil, false
	}
	next := o.Clone()
	appspec.MakeTyped(next.Child("spec"))
	stamp(next, rec)
	return object.Encode(next.Fields), true
}
