package mirror

import (
	"slices"

	"github.com/argomesh/argomesh/stream"
)

// takenCommand is the newest command that a spoke took of an Application; the
// zero value is none. It is in memory. The Application may be restored to what it was
// before, so what it does not show is not believed.
type takenCommand struct {
	version  stream.Version
	end      target
	id       string                // of the operation; empty for none
	requests [len(requests)]string // ids; empty for none
	uid      string                // of the object that took it; another one of its name did not
}

func takenOf(e stream.Event, uid string) takenCommand {
	t := takenCommand{version: e.Version, uid: uid}
	data, refusal := contentOf(e, "the command")
	if refusal != nil {
		return t // planCommand took it, so it decodes
	}
	operation, _ := data["operation"].(map[string]any)
	t.end, t.id = targetOf(data), commandID(operation)
	for i, names := range requests {
		r, _ := data[names.name].(map[string]any)
		t.requests[i] = stringAt(r, "id")
	}
	return t
}

// held is the version of the command that o holds. Argo CD's controller writes
// operationState without looking at what it overwrites, and so may undo a
// termination; then nothing is held, and the hub sends the command again. So it does
// when o does not show what it took.
func (t takenCommand) held(o object) stream.Version {
	if t.uid != o.uid() || t.end.runs(o) || !t.shown(o) {
		return stream.Version{}
	}
	return t.version
}

// shown reports whether o tells of all that was taken with the command.
func (t takenCommand) shown(o object) bool {
	for i, names := range requests {
		if t.requests[i] != "" && o.annotation(names.taken) != t.requests[i] {
			return false
		}
	}
	return t.id == "" || showsCommand(o, t.id)
}

// showsCommand reports whether o tells that its spoke has taken a command.
func showsCommand(o object, id string) bool {
	ids := takenCommands(o)
	return commandID(o.child("operation")) == id || commandID(o.child("status", "operationState", "operation")) == id ||
		slices.Contains(ids, id) || slices.Contains(ids, unstartedPrefix+id)
}

// lost refuses an event with the operation that was taken before and of which o tells
// nothing any more: it may have run, and a command takes effect at most once.
func (t takenCommand) lost(e stream.Event, o object) *stream.Refusal {
	if t.id == "" || t.uid != o.uid() || e.Verb != stream.Apply || takenOf(e, t.uid).id != t.id || showsCommand(o, t.id) {
		return nil
	}
	return invalid("the Application on the spoke is as it was before it took the command, as after a restore; " +
		"whether the command ran is not known, so it is not run again")
}
