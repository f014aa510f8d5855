// Package untaken says of the Applications of a hub which no agent takes why that is.
package untaken

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Reporter reports why no agent owns an Application of the hub, where nothing else would: in a
// condition and an Event, and as the result of a sync that a user asked for and nothing would
// run. It concerns the hub as a whole and no link, and is for one principal at a time.
type Reporter struct {
	Store backends.Store
	// Selector narrows the Applications that agents may have; nil for all. What it leaves
	// out is not ours.
	Selector labels.Selector
	// Verdicts returns a function that says why no agent owns the Application of that name, empty
	// if there is nothing to say, and whether that ends its sync. It returns false while that is
	// not known. The function holds for one pass.
	Verdicts func() (says func(name string, p mapping.Placement) (message string, endsSync bool), known bool)
	// Changed returns a channel that is closed when Verdicts may say something else of many.
	Changed func() <-chan struct{}
	// Event makes an Event of an Application. Its error is logged, and no more.
	Event func(ctx context.Context, about backends.Object, message string) error
	// Count is told how many there are, when that has changed, and again after an error,
	// which is logged.
	Count func(ctx context.Context, n int) error
	Log   zerolog.Logger
}

// An Application is looked at pause after it changed, since of an agent and its
// Application one is a moment younger. Writes are writesPerSecond a second, Events included,
// which wait for the conditions. What has just changed comes before what has waited, so that
// someone who looks at one is told at once, whatever thousands there are; but while some
// wait, theirs is what is left of a pass after fresh.
const (
	pause           = 2 * time.Second
	fresh           = 3 * pause / 4
	writesPerSecond = 50
	// maxEvents bounds the Events that wait; more are not made.
	maxEvents = 10_000
)

// prefixes begin what Verdicts returns, so that it is found again.
var prefixes = []string{"no agent takes it: ", "nothing deploys it: "}

// verdictFunc is what Verdicts returns.
type verdictFunc = func(name string, p mapping.Placement) (message string, endsSync bool)

// observed is what of an Application decides whether something is to be said of it.
type observed struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Destination struct {
			Name   string `json:"name"`
			Server string `json:"server"`
		} `json:"destination"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// shown is object.ErrorShown of its conditions.
func (l *observed) shown() string {
	for _, c := range l.Status.Conditions {
		if c.Type == object.ErrorCondition {
			return c.Message
		}
	}
	return ""
}

// Run keeps at it until ctx is done.
func (u *Reporter) Run(ctx context.Context) error {
	changed, cancel, synced := keyset.Follow(ctx, u.Store, stream.Application)
	defer cancel()
	if !synced {
		return nil
	}
	pass := pass{Reporter: u, writes: rate.NewLimiter(writesPerSecond, 1), counted: -1,
		waiting: map[stream.ResourceKey]bool{}, untaken: map[stream.ResourceKey]bool{},
		reported: map[stream.ResourceKey]string{},
		yielded:  map[stream.ResourceKey]bool{},
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	again := u.Changed()
	all := true
	var rested []stream.ResourceKey // changed before the last tick
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			again, all = u.Changed(), true
		case <-tick.C:
			says, known := u.Verdicts()
			if !known {
				continue
			}
			if all {
				for _, o := range u.Store.List(stream.Application, "") {
					pass.waiting[o.Key] = true
				}
				all = false
			}
			young := changed.Drain()
			pass.run(ctx, rested, says)
			rested = young
		}
	}
}

// pass is what is kept from one pass to the next.
type pass struct {
	*Reporter
	writes *rate.Limiter
	// waiting are those for which there was no time, and all after something has changed that
	// concerns many.
	waiting map[stream.ResourceKey]bool
	untaken map[stream.ResourceKey]bool
	// reported is what the conditions say that this process wrote, or would write.
	reported map[stream.ResourceKey]string
	// yielded are Applications where this process has changed a condition that was not its
	// own. It may have been that of an earlier process, which happens once; what comes back
	// is another hub's, in the same cluster, and stays.
	yielded map[stream.ResourceKey]bool
	counted int
	events  []event
}

type event struct {
	about   backends.Object
	message string
}

// run looks at those that have changed and at those that wait. It ends after pause, so
// that what changes meanwhile has its turn.
func (p *pass) run(ctx context.Context, changed []stream.ResourceKey, says verdictFunc) {
	now := time.Now()
	end, cancel := context.WithDeadline(ctx, now.Add(pause))
	defer cancel()
	for _, key := range changed {
		delete(p.waiting, key)
	}
	first, older := end, p.events
	if len(p.waiting) > 0 || len(older) > 0 {
		var cancel context.CancelFunc
		first, cancel = context.WithDeadline(ctx, now.Add(fresh))
		defer cancel()
	}
	p.events = nil
	p.conditions(ctx, first, changed, says)
	p.makeEvents(ctx, first)
	p.events = append(p.events, older...)
	p.events = p.events[:min(len(p.events), maxEvents)]
	p.conditions(ctx, end, slices.Collect(maps.Keys(p.waiting)), says)
	p.count(ctx)
	p.makeEvents(ctx, end)
}

// conditions writes those of these Applications until end is done. What is left waits, also
// where nothing would be written: to look at tens of thousands takes longer than a pass.
func (p *pass) conditions(ctx, end context.Context, keys []stream.ResourceKey, says verdictFunc) {
	spent := false // what may be written in this time is
	for _, key := range keys {
		if spent || end.Err() != nil {
			p.waiting[key] = true
			continue
		}
		delete(p.waiting, key)
		w := p.plan(key, says)
		if w == nil {
			continue
		}
		if p.writes.Wait(end) != nil {
			p.waiting[key], spent = true, true
			continue
		}
		switch _, err := p.Store.Update(ctx, w.observed, w.next); {
		case errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound): // the cache will tell
		case err != nil:
			p.waiting[key] = true
			if ctx.Err() == nil {
				p.Log.Warn().Err(err).Stringer("resource", key).
					Msg("cannot update the condition that says that no agent takes the Application, retrying")
			}
		default:
			p.wrote(w)
		}
	}
}

// count tells how many there are, if that has changed.
func (p *pass) count(ctx context.Context) {
	if len(p.untaken) == p.counted {
		return
	}
	if err := p.Count(ctx, len(p.untaken)); err == nil {
		p.counted = len(p.untaken)
	} else if ctx.Err() == nil {
		p.Log.Warn().Err(err).Msg("cannot write how many Applications no agent takes, retrying")
	}
}

// makeEvents makes the Events that wait until end is done.
func (p *pass) makeEvents(ctx, end context.Context) {
	for len(p.events) > 0 && p.writes.Wait(end) == nil {
		e := p.events[0]
		p.events = p.events[1:]
		if err := p.Event(ctx, e.about, e.message); err != nil && ctx.Err() == nil {
			p.Log.Warn().Err(err).Stringer("resource", e.about.Key).
				Msg("cannot create an Event for an Application that no agent takes")
		}
	}
}

// write is a write of an Application.
type write struct {
	observed backends.Object // what was looked at
	next     []byte
	message  string // what is to be said of it, empty for nothing
	news     bool   // its condition has not said that
	foreign  bool   // its condition said what this process has not written
}

// plan returns what to write of an Application, nil for nothing.
func (p *pass) plan(key stream.ResourceKey, says verdictFunc) *write {
	delete(p.untaken, key)
	o, there := p.Store.Get(key)
	if !there {
		delete(p.reported, key)
		delete(p.yielded, key)
		return nil
	}
	var seen observed
	if err := json.Unmarshal(o.Raw, &seen); err != nil {
		p.Log.Debug().Err(err).Stringer("resource", key).Msg("Application cannot be decoded")
		return nil
	}
	message, endsSync := p.messageOf(key, &seen, says)
	if message != "" {
		p.untaken[key] = true
	}
	shown := seen.shown()
	if shown == message {
		p.setReported(key, message)
	}
	if message == "" && !ours(shown) {
		return nil // as nearly all, which need not be read as a whole
	}
	w := &write{observed: o, message: message}
	w.foreign = ours(shown) && shown != p.reported[key]
	if w.foreign && p.yielded[key] {
		return nil
	}
	current, err := object.Parse(o)
	if err != nil {
		p.Log.Debug().Err(err).Stringer("resource", key).Msg("Application cannot be decoded")
		return nil
	}
	if w.next, w.news = patchOf(current, shown, message, endsSync, time.Now()); w.next == nil {
		return nil
	}
	return w
}

// wrote keeps what was written.
func (p *pass) wrote(w *write) {
	p.setReported(w.observed.Key, w.message)
	if w.foreign {
		p.yielded[w.observed.Key] = true
	}
	if w.news && len(p.events) < maxEvents {
		p.events = append(p.events, event{w.observed, w.message})
	}
}

// setReported notes that a condition says what this process says.
func (p *pass) setReported(key stream.ResourceKey, message string) {
	if message == "" {
		delete(p.reported, key)
		return
	}
	p.reported[key] = message
}

// messageOf is what Verdicts say of an Application that is ours to speak of.
func (p *pass) messageOf(key stream.ResourceKey, seen *observed, says verdictFunc) (message string, endsSync bool) {
	_, released := seen.Metadata.Annotations[record.ReleasedKey]
	switch {
	case seen.Metadata.Labels[object.IgnoreSyncKey] == "true",
		seen.Metadata.Annotations[object.SkipReconcileKey] == "true":
		return "", false
	case p.Selector != nil && !p.Selector.Matches(labels.Set(seen.Metadata.Labels)):
		return "", false
	case seen.Metadata.Annotations[object.RecordKey] != "" &&
		!released, seen.Metadata.Annotations[object.PrincipalUIDKey] != "":
		return "", false // a mirror, or a copy
	}
	return says(key.Name,
		mapping.Placement{Namespace: key.Namespace, Name: seen.Spec.Destination.Name, Server: seen.Spec.Destination.Server})
}

// patchOf returns an Application, of which shown is said, that says that no agent takes
// it, or does not say so any more when the message is empty; nil when it is as it should be.
// news says that the message is new.
func patchOf(current object.Object, shown, message string, endsSync bool, now time.Time) (next []byte, news bool) {
	changed := false
	if message != "" || ours(shown) {
		changed = object.SetCondition(current, object.ErrorCondition, message, now)
		news = changed && message != ""
	}
	if message != "" && endsSync {
		changed = answer(current, message, now) || changed
	}
	if !changed {
		return nil, false
	}
	return object.Encode(current.Fields), news
}

// answer ends what someone asked for and no one would do, and reports whether there
// was something: argocd and the UI wait for a refresh as for a sync, without an end.
func answer(o object.Object, message string, now time.Time) bool {
	asked := false
	if operation := o.Child("operation"); operation != nil {
		endOperation(o, operation, message, now)
		asked = true
	}
	for _, key := range []string{object.RefreshKey, object.HydrateKey} {
		if o.Annotation(key) != "" {
			delete(o.Child("metadata", "annotations"), key)
			asked = true
		}
	}
	return asked
}

// endOperation ends an operation that no one would run.
func endOperation(o object.Object, operation map[string]any, message string, now time.Time) {
	at := now.UTC().Format(time.RFC3339)
	status := o.Ensure("status")
	state := o.Child("status", "operationState")
	started := object.StringAt(state, "startedAt")
	if started == "" || object.StringAt(state, "finishedAt") != "" {
		started = at
	}
	status["operationState"] = map[string]any{
		"operation": operation, "phase": "Error", "message": message, "startedAt": started, "finishedAt": at,
	}
	// argocd app sync waits until the Application was reconciled after that. There is
	// no one to do it, so what it waits for is over now.
	status["reconciledAt"] = at
	delete(o.Fields, "operation")
}

// ours reports whether a message is one of ours.
func ours(message string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(message, prefix) {
			return true
		}
	}
	return false
}
