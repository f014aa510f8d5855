package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// history checks whether hub and spoke are still the ones that last met.
type history struct {
	*shared
	commands   *commands
	removals   *removals
	acceptUsed *string // of Mirror.accept, what was used last; nil for nothing
}

// checkTime bounds one check of the history. One that finds it broken may wait for
// a list of all that the hub has.
const checkTime = 2 * time.Minute

// check finds out whether the history of the hub continues, and tells the link.
func (hi *history) check() {
	s := hi.session
	hi.known.seen = hi.announced()
	hi.known.checks++
	number := hi.known.checks
	namespaces := hi.removals.namespacesToCheck()
	if s == nil || hi.env.cfg.History == nil && len(namespaces) == 0 {
		hi.step(link.Doomed{})
		hi.checked(number, HistoryCheck{Now: hi.known.seen}, nil)
		return
	}
	known, outdated := Known{Sent: hi.known.sent, Begins: hi.known.begins}, hi.known.outdated
	hi.background(s, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		var check HistoryCheck
		behind, err := hi.env.cfg.isNewest(ctx, outdated)
		if err == nil {
			if behind {
				known.Behind = outdated.key.String()
			}
			check, err = hi.env.cfg.checkHistory(ctx, s.peer, known)
		}
		var doomed map[string]string
		if err == nil && len(namespaces) > 0 {
			doomed, err = hi.env.cfg.TerminatingNamespaces(ctx, namespaces)
		}
		return func() {
			if errors.Is(err, ErrSuperseded) {
				// Else both ends might keep a connection on which nothing is checked.
				hi.env.whole.end(stream.GoodbyeSuperseded, err)
				return
			}
			hi.step(hi.removals.doomed(doomed))
			switch {
			case known.Begins != hi.known.begins: // it is about the history before
				hi.step(link.HistoryChecked{Unknown: true})
				hi.step(link.RecheckHistory{})
			case err == nil && check.Broken == "" && check.Now.Token != "" && hi.rules.Mode == stream.Autonomous:
				hi.confirm(s, check.Now, func(err error) { hi.checked(number, check, err) })
			default:
				hi.checked(number, check, err)
			}
		}
	})
}

// confirmTime is how long a spoke may take to say what it keeps.
const confirmTime = 30 * time.Second

// confirm lets the spoke say that it still keeps the history, before then: what is
// missing on a spoke that was restored on this connection was not deleted there. The
// hello, from before the restore, does not tell.
func (hi *history) confirm(s *session, h stream.History, then func(error)) {
	hi.send(h)
	confirmed := make(chan struct{})
	hi.known.confirm = confirmed
	hi.background(s, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, confirmTime)
		defer cancel()
		select {
		case <-confirmed:
			return func() { then(nil) }
		case <-ctx.Done():
			return func() { then(errUnconfirmed) }
		}
	})
}

var errUnconfirmed = errors.New("the spoke does not say whether it still keeps the history")

// contradicted notes whether the spoke has an Application as it was later than what was
// sent of it. From a cache that is behind that is so for a while.
func (hi *history) contradicted(a link.Answered) {
	switch {
	case a.Refusal == nil || a.Refusal.Kind != stream.RefusalOutdated:
		if a.Key == hi.known.outdated.entry {
			hi.known.outdated = sentObject{}
		}
		return
	case a.Key.Collection == stream.Applications && a.Current:
		key, _ := hi.rules.Local(a.Key)
		if o := hi.view.Current(key); o != nil {
			hi.known.outdated = sentObject{entry: a.Key, key: key, uid: o.UID(), resourceVersion: o.Meta("resourceVersion")}
		}
	}
	hi.step(link.RecheckHistory{}) // within one history it does not last
}

func (hi *history) checked(number uint64, check HistoryCheck, err error) {
	broken := check.Broken
	switch {
	case err != nil:
		hi.env.cfg.Log.Warn().Err(err).Msg("cannot check the hub's history; nothing is removed until this succeeds")
		hi.step(link.HistoryChecked{Unknown: true})
		return
	case broken != "" && !hi.known.broken:
		hi.env.cfg.Log.Warn().Str("reason", broken).
			Msg("the hub's history does not continue for this agent; nothing is removed until a person accepts that")
	}
	hi.known.checked, hi.known.broken, hi.known.now = true, broken != "", check.Now
	hi.env.whole.follow(number, check)
	stale := check.Stale
	if broken != "" && !stale {
		hi.env.whole.catchUp() // what the cache has come to show
		stale = hi.unconfirmed()
	}
	hi.step(link.HistoryChecked{Broken: broken, Stale: stale})
	hi.accept()
	hi.publish()
	hi.env.cfg.HistoryChanged()
	hi.observeAll(slices.Collect(maps.Keys(hi.commands.waiting)))
}

// begin notes that the history of the moment may be replaced.
func (hi *history) begin() {
	hi.known.broken, hi.known.replaced, hi.known.stored, hi.known.sent = false, hi.known.now.ID, "", 0
	hi.known.outdated = sentObject{} // it was of the one before
	hi.known.begins++
	hi.env.cfg.HistoryChanged()
	hi.env.cfg.Log.Info().Msg("nothing is withheld any longer because of the hub's history; a new history may start")
}

// mayBegin says whether a new history may begin, and in place of which.
func (hi *history) mayBegin() (begin bool, replaces string) {
	id := hi.known.now.ID
	switch {
	case hi.session == nil || !hi.known.checked || hi.known.broken:
		return false, ""
	case hi.known.begins > 0 && id == hi.known.replaced:
		return true, id
	}
	return id == "", ""
}

// history is what Announce was last told.
func (hi *history) announced() stream.History {
	if h := hi.env.settings.history.Load(); h != nil {
		return *h
	}
	return stream.History{}
}

// recheck has the history checked again when someone asks for it, or the watch shows another
// one than it did when that was last asked for.
func (hi *history) recheck() {
	if asked := hi.env.settings.recheck.Swap(false); hi.rules.Side == stream.Hub &&
		(asked || hi.announced() != hi.known.seen) {
		hi.step(link.RecheckHistory{})
	}
}

// accept passes on what Accept was last told, once: the same set that goes again later
// waits again, until Accept was told something else in between.
func (hi *history) accept() {
	id := hi.env.settings.accept.Load()
	if id == nil || *id == "" || id == hi.acceptUsed {
		return
	}
	w := hi.link.Withheld()
	if *id != w.ID {
		return
	}
	hi.acceptUsed = id
	hi.env.cfg.HistoryChanged() // Stats tells
	hi.step(link.Accepted{ID: *id})
	if len(w.Ending) > 0 && hi.env.cfg.Cascades != nil {
		hi.env.cfg.Cascades.Accept(hi.rules.Agent)
		hi.removals.updateAdmission()
	}
}

// publish tells the spoke where the history of the hub stands. A token that it
// keeps is a proof that it was there, so it gets none but of a read by which the
// history continues; and while the history does not continue, it has no name, since
// revisions cannot be compared.
func (hi *history) publish() {
	if hi.rules.Side != stream.Hub || hi.session == nil {
		return
	}
	h := hi.known.now
	switch {
	case !hi.known.checked:
		h = stream.History{ID: hi.announced().ID}
	case hi.known.broken, hi.known.begins > 0 && h.ID == hi.known.replaced:
		h = stream.History{}
	}
	hi.rules.HistoryID = h.ID
	if told := hi.known.announced; h.ID != told.ID || h.Token != told.Token {
		hi.send(h)
	}
}

// send tells the spoke where the history stands.
func (hi *history) send(h stream.History) {
	if h.Token != "" {
		hi.known.tokens++
	}
	hi.known.announced = h
	hi.session.queue = append(hi.session.queue, h)
}

// receive takes what the peer says of the history.
func (hi *history) receive(h stream.History) {
	if hi.rules.Side == stream.Hub {
		if hi.known.echoes++; hi.known.echoes == hi.known.tokens && hi.known.confirm != nil {
			close(hi.known.confirm)
			hi.known.confirm = nil
		}
		if h.Token == hi.known.announced.Token { // else a late word on one before
			hi.known.stored = h.Token
			hi.env.cfg.HistoryChanged()
		}
		return
	}
	hi.rules.HistoryID = h.ID
	switch {
	case h.Token == "" || hi.env.cfg.SaveHistory == nil:
		return
	case len(hi.known.unsaved) == maxUnsaved:
		hi.env.whole.breach(stream.ViolationLimit)
		return
	}
	hi.known.unsaved = append(hi.known.unsaved, h)
	if len(hi.known.unsaved) == 1 {
		hi.save()
	}
}

// maxUnsaved is how many tokens a hub may have told that the spoke has not saved yet. It
// tells one, and another when it has waited for confirmTime: this is half an hour without
// the spoke's API server.
const maxUnsaved = 64

// save keeps the oldest token that is not kept, and then the others, one at a time:
// each asks the API server, however many the hub tells.
func (hi *history) save() {
	s, hub, h := hi.session, hi.rules.HubUID, hi.known.unsaved[0]
	hi.background(s, func(ctx context.Context) func() {
		err := hi.env.cfg.SaveHistory(ctx, hub, h)
		return func() {
			if errors.Is(err, ErrForgotten) {
				hi.env.whole.end("", err)
				return
			}
			if err == nil {
				// A token comes once a break is accepted, or when nothing had to be.
				hi.rules.Inherits = true
				hi.session.queue = append(hi.session.queue, stream.History{Token: h.Token})
			}
			if hi.known.unsaved = hi.known.unsaved[1:]; len(hi.known.unsaved) > 0 {
				hi.save()
			}
		}
	})
}

// unconfirmed reports whether the link may take for there what the hub has no more: an
// object in the midst of a write, or one that only a write of ours has shown.
func (hi *history) unconfirmed() bool {
	for key := range hi.jobs.AllRunning {
		if o := hi.view.Current(key); o == nil || o.Deleting() {
			return true // observe passes it over; finish looks
		}
	}
	return hi.view.HasUncached() // verify tells
}
