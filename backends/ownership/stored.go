package ownership

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Reply is what the API server made of our last write of an entry. It lives in
// memory: without it an object that the API server changed is written once more.
type Reply struct {
	Version stream.Version
	// UID is that of the object: of another one by the same name it says nothing.
	UID string
	// Local is the hash of the part the source owns, as the API server returned it.
	Local stream.Hash
}

// ReplyOf is the Reply for a write of version v that resulted in o.
func (r Rules) ReplyOf(c stream.Collection, v stream.Version, o object.Object) Reply {
	return Reply{Version: v, UID: o.UID(), Local: r.LocalHash(c, o)}
}

// LocalHash hashes what the source of c owns of o.
func (r Rules) LocalHash(c stream.Collection, o object.Object) stream.Hash {
	if c == stream.Statuses {
		return stream.HashOf(object.Encode(statusForm(o, operations.StartedOnSpoke(o.Child("operation")))))
	}
	rec, _ := record.Of(o)
	return stream.HashOf(owned(o, rec))
}

// Stored returns the version that a sink stores in o. last is the last Reply for
// the entry; nil when there is none.
func (r Rules) Stored(c stream.Collection, o object.Object, last *Reply) stream.Version {
	uid := r.UIDIn(c, o)
	switch {
	case uid == "" || c == stream.Commands:
		return stream.Version{} // what was taken of commands is known to the Mirror alone
	case c == stream.Statuses && r.Unsendable(o) != "":
		return stream.Version{} // it shows none
	}
	local := r.LocalHash(c, o)
	rec, _ := record.Of(o)
	if c != stream.Statuses && (rec.Releasing || rec.Leaving != o.Deleting() || misshapen(r, c, rec)) {
		return stream.Version{SourceUID: uid, Hash: local} // begun but not yet done, or done by others or by other rules
	}
	if r.Wants(c, o) {
		return stream.Version{SourceUID: uid, Hash: local}
	}
	if last != nil && last.UID == o.UID() && last.Local == local &&
		(last.Version.SourceUID == uid || last.Version.Absent()) {
		return last.Version
	}
	if c != stream.Statuses && rec.Wrote == local.String() {
		if hash, err := stream.ParseHash(rec.Hash); err == nil {
			return stream.Version{SourceUID: uid, Hash: hash}
		}
	}
	return stream.Version{SourceUID: uid, Hash: local}
}

// Dropped are the paths that are left out of the copy o, in the collection by which it
// was written.
func (r Rules) Dropped(c stream.Collection, o object.Object) []string {
	switch c {
	case stream.Applications, stream.AppProjects, stream.Children:
	default:
		return nil
	}
	if r.Sources(c) || r.UIDIn(c, o) == "" {
		return nil
	}
	rec, _ := record.Of(o)
	return rec.Dropped[:min(len(rec.Dropped), stream.MaxDropped)]
}

// regains reports whether something was left out of a copy that may fit by now.
func regains(r Rules, o object.Object, rec record.Record) bool {
	if rec.Bounds != "" && rec.Bounds != r.Policy.ID() {
		return true
	}
	known := r.Schemas[o.Key.Kind]
	return len(rec.Dropped) > 0 && rec.Schema != "" && known != nil && known.ID() != rec.Schema
}

// Wants reports whether a copy is to be sent again for a reason of this side: what was left
// out of it may fit by now, or it does not name this hub.
func (r Rules) Wants(c stream.Collection, o object.Object) bool {
	rec, _ := record.Of(o)
	return c != stream.Statuses && r.UIDIn(c, o) != "" && (regains(r, o, rec) || r.NamesOtherHub(o))
}

// misshapen reports whether a mirror was written under other rules than these.
func misshapen(r Rules, c stream.Collection, rec record.Record) bool {
	return c == stream.AppProjects && rec.Shaping != appProjects(r).Shaping() || borrows(r.Side, rec)
}
