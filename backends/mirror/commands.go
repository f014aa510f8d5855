package mirror

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// commands are those that the hub has for the spoke, and what the hub shows of them.
type commands struct {
	*shared
	// waiting holds the objects whose commands wait for the spoke.
	waiting map[stream.ResourceKey]waiting
	// stale says why a command that waits is not to be sent any more.
	stale map[stream.ResourceKey]string
	// spokeOperations holds the objects that show an operation which was born on the spoke.
	spokeOperations map[stream.ResourceKey]bool
	// answered holds the objects that show what the spoke answered, maybe to another
	// principal.
	answered map[stream.ResourceKey]bool
	asked    map[stream.ResourceKey]operations.Requests
	failures map[stream.EntryKey]failure // commands that the spoke will not run
}

// waiting is a command that waits for the spoke.
//
// What the caches show of it may be from a backup of the hub, made before the command
// was sent: nothing in the object tells, and the caches of objects and of the history
// are not in step. So the command is sent once a check that began after it was seen
// says that the history goes on.
type waiting struct {
	uid string
	// since is the resourceVersion at which it was seen first, and revision that of the
	// newest state. Within one history the latter only grows; a restore takes it back.
	since, revision uint64
	// newestCheck is the number of the newest check that had begun when it was seen.
	newestCheck uint64
}

// wait notes whether a command of an object waits.
func (co *commands) wait(key stream.ResourceKey, o object.Object, waits bool) {
	before, known := co.waiting[key]
	if !waits {
		delete(co.waiting, key)
		delete(co.stale, key)
		return
	}
	w := waiting{uid: o.UID(), since: o.Revision(), revision: o.Revision(), newestCheck: co.known.checks}
	if known && before.uid == w.uid && w.revision >= before.revision {
		w.since, w.newestCheck = before.since, before.newestCheck
	} else if co.session != nil && co.awaitsChecks() {
		co.step(link.RecheckHistory{})
	}
	co.waiting[key] = w
}

// waits reports whether a command of an object waits.
func (co *commands) waits(key stream.ResourceKey) bool {
	_, ok := co.waiting[key]
	return ok
}

// awaitsChecks reports whether commands wait for checks. The originals of an autonomous
// agent know by themselves what was meant for them.
func (co *commands) awaitsChecks() bool {
	return co.env.cfg.History != nil && co.rules.Mode == stream.Managed
}

// verifiedFrom is the resourceVersion from which on the states of an object whose command
// waits are of the present history; zero while that is not known.
func (co *commands) verifiedFrom(key stream.ResourceKey) uint64 {
	w, ok := co.waiting[key]
	switch {
	case !ok:
		return 0
	case !co.awaitsChecks():
		return 1
	case co.known.answered > w.newestCheck:
		return w.since
	}
	return 0
}

// assignIDs gives the requests of an object their ids for as long as they stand.
func (co *commands) assignIDs(key stream.ResourceKey, current *object.Object) {
	if co.rules.Side != stream.Hub || current == nil {
		return
	}
	if asked := co.asked[key].Of(*current, uuid.NewString); asked != (operations.Requests{}) {
		co.asked[key] = asked
	} else {
		delete(co.asked, key)
	}
}

// failure is the spoke's refusal of one version of an entry.
type failure struct {
	version stream.Version
	refusal stream.Refusal
}

// shows notes what an object of the hub shows of commands.
func (co *commands) shows(key stream.ResourceKey, current object.Object) {
	waits := false
	delete(co.answered, key)
	if co.rules.ShowsAnswer(current) {
		co.answered[key] = true
	}
	delete(co.spokeOperations, key)
	if operation := current.Child("operation"); co.rules.Side == stream.Hub && operation != nil {
		switch {
		case operations.StartedOnSpoke(operation) != nil:
			co.spokeOperations[key] = true
		case !operations.Sent(current):
			waits = true
		}
	}
	co.wait(key, current, waits)
}

// showLink takes what ShowLink was last told.
func (co *commands) showLink() {
	s := co.env.settings.linkState.Load()
	if s == nil {
		return
	}
	if next := co.presence.Show(*s, time.Now()); !next.IsZero() {
		co.scheduleLook(next)
	}
}

// expireSpokeOperations looks again at the operations of a spoke that has been away for long.
func (co *commands) expireSpokeOperations() {
	switch {
	case co.presence.Connected():
	case co.presence.Away(time.Now()) < ownership.AwayTime:
		co.scheduleLook(co.presence.AwayAt(ownership.AwayTime))
	default:
		co.observeAll(slices.Collect(maps.Keys(co.spokeOperations)))
	}
}
