package mirror

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
	"github.com/argomesh/argomesh/stream"
)

// Untaken says of the Applications of a hub which no agent takes why that is, where nobody
// else would: in a condition and an Event, and as the result of a sync that somebody asked
// for, which nobody would run. It concerns the hub as a whole and no link, and is for one
// principal at a time.
type Untaken struct {
	Store backends.Store
	// Selector narrows the Applications that agents may have; nil for all. What it leaves
	// out is not ours.
	Selector labels.Selector
	// Says returns what says of an Application with that name why no agent takes it, empty
	// for nothing, and whether that ends its sync; false while that is not known. What it
	// returns holds for one pass.
	Says func() (says func(name string, p Placement) (message string, endsSync bool), known bool)
	// Changed returns a channel that is closed when Says may say something else of many.
	Changed func() <-chan struct{}
	// Event makes an Event of an Application. Its error is logged, and no more.
	Event func(ctx context.Context, about backends.Object, message string) error
	// Count is told how many there are, when that has changed, and again after an error,
	// which is logged.
	Count func(ctx context.Context, n int) error
	Log   zerolog.Logger
}

// An Application is looked at untakenPause after it changed, since of an agent and its
// Application one is a moment younger. Writes are untakenWrites a second, Events included,
// which wait for the conditions. What has just changed comes before what has waited, so that
// somebody who looks at one is told at once, whatever thousands there are; but while some
// wait, theirs is what is left of a pass after untakenFresh.
const (
	untakenPause  = 2 * time.Second
	untakenFresh  = 3 * untakenPause / 4
	untakenWrites = 50
	// maxUntakenEvents bounds the Events that wait; more are not made.
	maxUntakenEvents = 10_000
)

// untakenPrefixes begin what Says returns, so that it is found again.
var untakenPrefixes = []string{"no agent takes it: ", "nothing deploys it: "}

// untakenSays is what Says returns.
type untakenSays = func(name string, p Placement) (message string, endsSync bool)

// untakenLook is what of an Application decides whether something is to be said of it.
type untakenLook struct {
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

// shown is errorShown of its conditions.
func (l *untakenLook) shown() string {
	for _, c := range l.Status.Conditions {
		if c.Type == errorCondition {
			return c.Message
		}
	}
	return ""
}

// Run keeps at it until ctx is done.
func (u *Untaken) Run(ctx context.Context) error {
	changed := newKeySet()
	cancel := u.Store.Subscribe(func(key stream.ResourceKey) {
		if key.Kind == stream.Application {
			changed.add(key)
		}
	})
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case <-u.Store.Synced():
	}
	pass := untakenPass{Untaken: u, writes: rate.NewLimiter(untakenWrites, 1), counted: -1,
		waiting: map[stream.ResourceKey]bool{}, untaken: map[stream.ResourceKey]bool{}, told: map[stream.ResourceKey]string{},
		yielded: map[stream.ResourceKey]bool{},
	}
	tick := time.NewTicker(untakenPause)
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
			says, known := u.Says()
			if !known {
				continue
			}
			if all {
				for _, o := range u.Store.List(stream.Application, "") {
					pass.waiting[o.Key] = true
				}
				all = false
			}
			young := changed.take()
			pass.run(ctx, rested, says)
			rested = young
		}
	}
}

// untakenPass is what is kept from one pass to the next.
type untakenPass struct {
	*Untaken
	writes *rate.Limiter
	// waiting are those for which there was no time, and all after something has changed that
	// concerns many.
	waiting map[stream.ResourceKey]bool
	untaken map[stream.ResourceKey]bool
	// told is what the conditions say that this process wrote, or would write.
	told map[stream.ResourceKey]string
	// yielded are Applications where this process has changed a condition that was not its
	// own. It may have been that of an earlier process, which happens once; what comes back
	// is another hub's, in the same cluster, and stays.
	yielded map[stream.ResourceKey]bool
	counted int
	events  []untakenEvent
}

type untakenEvent struct {
	about   backends.Object
	message string
}

// run looks at those that have changed and at those that wait. It ends after untakenPause, so
// that what changes meanwhile has its turn.
func (p *untakenPass) run(ctx context.Context, changed []stream.ResourceKey, says untakenSays) {
	now := time.Now()
	end, cancel := context.WithDeadline(ctx, now.Add(untakenPause))
	defer cancel()
	for _, key := range changed {
		delete(p.waiting, key)
	}
	first, older := end, p.events
	if len(p.waiting) > 0 || len(older) > 0 {
		var cancel context.CancelFunc
		first, cancel = context.WithDeadline(ctx, now.Add(untakenFresh))
		defer cancel()
	}
	p.events = nil
	p.conditions(ctx, first, changed, says)
	p.makeEvents(ctx, first)
	p.events = append(p.events, older...)
	p.events = p.events[:min(len(p.events), maxUntakenEvents)]
	p.conditions(ctx, end, slices.Collect(maps.Keys(p.waiting)), says)
	p.count(ctx)
	p.makeEvents(ctx, end)
}

// conditions writes those of these Applications until end is done. What is left waits, also
// where nothing would be written: to look at tens of thousands takes longer than a pass.
func (p *untakenPass) conditions(ctx, end context.Context, keys []stream.ResourceKey, says untakenSays) {
	spent := false // what may be written in this time is
	for _, key := range keys {
		if spent || end.Err() != nil {
			p.waiting[key] = true
			continue
		}
		delete(p.waiting, key)
		w := p.judge(key, says)
		if w == nil {
			continue
		}
		if p.writes.Wait(end) != nil {
			p.waiting[key], spent = true, true
			continue
		}
		switch _, err := p.Store.Update(ctx, w.over, w.next); {
		case errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound): // the cache will tell
		case err != nil:
			p.waiting[key] = true
			if ctx.Err() == nil {
				p.Log.Warn().Err(err).Stringer("resource", key).Msg("cannot say of an application that no agent takes it, trying again")
			}
		default:
			p.wrote(w)
		}
	}
}

// count tells how many there are, if that has changed.
func (p *untakenPass) count(ctx context.Context) {
	if len(p.untaken) == p.counted {
		return
	}
	if err := p.Count(ctx, len(p.untaken)); err == nil {
		p.counted = len(p.untaken)
	} else if ctx.Err() == nil {
		p.Log.Warn().Err(err).Msg("cannot write how many applications no agent takes, trying again")
	}
}

// makeEvents makes the Events that wait until end is done.
func (p *untakenPass) makeEvents(ctx, end context.Context) {
	for len(p.events) > 0 && p.writes.Wait(end) == nil {
		e := p.events[0]
		p.events = p.events[1:]
		if err := p.Event(ctx, e.about, e.message); err != nil && ctx.Err() == nil {
			p.Log.Warn().Err(err).Stringer("resource", e.about.Key).Msg("cannot make an Event of an application that no agent takes")
		}
	}
}

// untakenWrite is a write of an Application.
type untakenWrite struct {
	over    backends.Object // what was looked at
	next    []byte
	message string // what is to be said of it, empty for nothing
	news    bool   // its condition has not said that
	foreign bool   // its condition said what this process has not written
}

// judge returns what to write of an Application, nil for nothing.
func (p *untakenPass) judge(key stream.ResourceKey, says untakenSays) *untakenWrite {
	delete(p.untaken, key)
	o, there := p.Store.Get(key)
	if !there {
		delete(p.told, key)
		delete(p.yielded, key)
		return nil
	}
	var seen untakenLook
	if err := json.Unmarshal(o.Raw, &seen); err != nil {
		p.Log.Debug().Err(err).Stringer("resource", key).Msg("application cannot be read")
		return nil
	}
	message, endsSync := p.verdict(key, &seen, says)
	if message != "" {
		p.untaken[key] = true
	}
	shown := seen.shown()
	if shown == message {
		p.keep(key, message)
	}
	if message == "" && !saysUntaken(shown) {
		return nil // as nearly all, which need not be read as a whole
	}
	w := &untakenWrite{over: o, message: message}
	w.foreign = saysUntaken(shown) && shown != p.told[key]
	if w.foreign && p.yielded[key] {
		return nil
	}
	current, err := parseObject(o)
	if err != nil {
		p.Log.Debug().Err(err).Stringer("resource", key).Msg("application cannot be read")
		return nil
	}
	if w.next, w.news = tellUntaken(current, shown, message, endsSync, time.Now()); w.next == nil {
		return nil
	}
	return w
}

// wrote keeps what was written.
func (p *untakenPass) wrote(w *untakenWrite) {
	p.keep(w.over.Key, w.message)
	if w.foreign {
		p.yielded[w.over.Key] = true
	}
	if w.news && len(p.events) < maxUntakenEvents {
		p.events = append(p.events, untakenEvent{w.over, w.message})
	}
}

// keep notes that a condition says what this process says.
func (p *untakenPass) keep(key stream.ResourceKey, message string) {
	if message == "" {
		delete(p.told, key)
		return
	}
	p.told[key] = message
}

// verdict is what Says says of an Application that is ours to speak of.
func (p *untakenPass) verdict(key stream.ResourceKey, seen *untakenLook, says untakenSays) (message string, endsSync bool) {
	_, released := seen.Metadata.Annotations[ReleasedKey]
	switch {
	case seen.Metadata.Labels[ignoreSyncKey] == "true", seen.Metadata.Annotations[skipReconcileKey] == "true":
		return "", false
	case p.Selector != nil && !p.Selector.Matches(labels.Set(seen.Metadata.Labels)):
		return "", false
	case seen.Metadata.Annotations[recordKey] != "" && !released, seen.Metadata.Annotations[principalUIDKey] != "":
		return "", false // a mirror, or a copy
	}
	return says(key.Name, Placement{Namespace: key.Namespace, Name: seen.Spec.Destination.Name, Server: seen.Spec.Destination.Server})
}

// tellUntaken returns an Application, of which shown is said, that says that no agent takes
// it, or does not say so any more when the message is empty; nil when it is as it should be.
// news says that the message is new.
func tellUntaken(current object, shown, message string, endsSync bool, now time.Time) (next []byte, news bool) {
	changed := false
	if message != "" || saysUntaken(shown) {
		changed = setCondition(current, errorCondition, message, now)
		news = changed && message != ""
	}
	if message != "" && endsSync {
		changed = answerUntaken(current, message, now) || changed
	}
	if !changed {
		return nil, false
	}
	return encode(current.fields), news
}

// answerUntaken ends what somebody asked for and nobody would do, and reports whether there
// was something: argocd and the UI wait for a refresh as for a sync, without an end.
func answerUntaken(o object, message string, now time.Time) bool {
	asked := false
	if operation := o.child("operation"); operation != nil {
		endUntaken(o, operation, message, now)
		asked = true
	}
	for _, key := range []string{refreshKey, hydrateKey} {
		if o.annotation(key) != "" {
			delete(o.child("metadata", "annotations"), key)
			asked = true
		}
	}
	return asked
}

// endUntaken ends an operation that nobody would run.
func endUntaken(o object, operation map[string]any, message string, now time.Time) {
	at := now.UTC().Format(time.RFC3339)
	status := o.ensure("status")
	state := o.child("status", "operationState")
	started := stringAt(state, "startedAt")
	if started == "" || stringAt(state, "finishedAt") != "" {
		started = at
	}
	status["operationState"] = map[string]any{
		"operation": operation, "phase": "Error", "message": message, "startedAt": started, "finishedAt": at,
	}
	// argocd app sync waits until the Application was reconciled after that. There is
	// nobody to do it, so what it waits for is over now.
	status["reconciledAt"] = at
	delete(o.fields, "operation")
}

// saysUntaken reports whether a message is one of ours.
func saysUntaken(message string) bool {
	for _, prefix := range untakenPrefixes {
		if strings.HasPrefix(message, prefix) {
			return true
		}
	}
	return false
}
