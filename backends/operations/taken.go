package operations

import (
	"slices"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// TakenCommand is the newest command that a spoke took of an Application; the
// zero value is none. It is in memory. The Application may be restored to what it was
// before, so what it does not show is not believed.
type TakenCommand struct {
	version  stream.Version
	end      Target
	id       string                // of the operation; empty for none
	requests [len(requests)]string // ids; empty for none
	uid      string                // of the object that took it; another one of its name did not
}

// TakenOf returns what of a command is remembered once it was taken.
func TakenOf(e stream.Event, uid string) TakenCommand {
	t := TakenCommand{version: e.Version, uid: uid}
	data, refusal := object.ContentOf(e, "the command")
	if refusal != nil {
		return t // planCommand took it, so it decodes
	}
	operation, _ := data["operation"].(map[string]any)
	t.end, t.id = TargetOf(data), CommandID(operation)
	for i, names := range requests {
		r, _ := data[names.name].(map[string]any)
		t.requests[i] = object.StringAt(r, "id")
	}
	return t
}

// Stored is the version of the command that o shows. Argo CD's controller writes
// operationState without looking at what it overwrites, and so may undo a
// Termination; then none is stored, and the hub sends the command again. So it does
// when o does not show what it took.
func (t TakenCommand) Stored(o object.Object) stream.Version {
	if t.uid != o.UID() || t.end.Runs(o) || !t.shown(o) {
		return stream.Version{}
	}
	return t.version
}

// shown reports whether o tells of all that was taken with the command.
func (t TakenCommand) shown(o object.Object) bool {
	for i, names := range requests {
		if t.requests[i] != "" && o.Annotation(names.taken) != t.requests[i] {
			return false
		}
	}
	return t.id == "" || showsCommand(o, t.id)
}

// showsCommand reports whether o tells that its spoke has taken a command.
func showsCommand(o object.Object, id string) bool {
	ids := TakenCommands(o)
	return CommandID(o.Child("operation")) == id || CommandID(o.Child("status", "operationState", "operation")) == id ||
		slices.Contains(ids, id) || slices.Contains(ids, UnstartedPrefix+id)
}

// RefuseRepeat refuses an event with the operation that was taken before and of which o tells
// nothing any more: it may have run, and a command takes effect at most once.
func (t TakenCommand) RefuseRepeat(e stream.Event, o object.Object) *stream.Refusal {
	if t.id == "" || t.uid != o.UID() || e.Verb != stream.Apply || TakenOf(e, t.uid).id != t.id || showsCommand(o, t.id) {
		return nil
	}
	return stream.Invalid("the Application on the spoke is as it was before it took the command, as after a restore; " +
		"whether the command ran is not known, so it is not run again")
}
