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

// history judges whether hub and spoke are still the ones that last met.
type history struct {
	*core
	commands *commands
	removals *removals
	spent    *string // of Mirror.accept, what was used last; nil for nothing
}

// judgeTime bounds one judgement of the history. One that finds it broken may wait for
// a list of all that the hub has.
const judgeTime = 2 * time.Minute

// judge finds out whether the history of the hub continues, and tells the link.
func (hi *history) judge() {
	s := hi.session
	hi.past.seen = hi.announced()
	hi.past.judgements++
	number := hi.past.judgements
	places := hi.removals.places()
	if s == nil || hi.env.cfg.History == nil && len(places) == 0 {
		hi.step(link.Doomed{})
		hi.judged(number, Judgement{Now: hi.past.seen}, nil)
		return
	}
	known, outdated := Known{Sent: hi.past.sent, Begins: hi.past.begins}, hi.past.outdated
	hi.background(s, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, judgeTime)
		defer cancel()
		var judgement Judgement
		behind, err := hi.env.cfg.isNewest(ctx, outdated)
		if err == nil {
			if behind {
				known.Behind = outdated.key.String()
			}
			judgement, err = hi.env.cfg.judgeHistory(ctx, s.peer, known)
		}
		var doomed map[string]string
		if err == nil && len(places) > 0 {
			doomed, err = hi.env.cfg.Places(ctx, places)
		}
		return func() {
			if errors.Is(err, ErrSuperseded) {
				// Else both ends might keep a connection on which nothing is judged.
				hi.env.whole.end(stream.GoodbyeSuperseded, err)
				return
			}
			hi.step(hi.removals.doomed(doomed))
			switch {
			case known.Begins != hi.past.begins: // it is about the history before
				hi.step(link.Judged{Unknown: true})
				hi.step(link.Doubted{})
			case err == nil && judgement.Broken == "" && judgement.Now.Token != "" && hi.rules.Mode == stream.Autonomous:
				hi.confirm(s, judgement.Now, func(err error) { hi.judged(number, judgement, err) })
			default:
				hi.judged(number, judgement, err)
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
	hi.tell(h)
	confirmed := make(chan struct{})
	hi.past.confirm = confirmed
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
func (hi *history) contradicted(a link.Settled) {
	switch {
	case a.Refusal == nil || a.Refusal.Kind != stream.RefusalOutdated:
		if a.Key == hi.past.outdated.entry {
			hi.past.outdated = sentObject{}
		}
		return
	case a.Key.Collection == stream.Applications && a.Current:
		key, _ := hi.rules.Local(a.Key)
		if o := hi.view.Current(key); o != nil {
			hi.past.outdated = sentObject{entry: a.Key, key: key, uid: o.UID(), resourceVersion: o.Meta("resourceVersion")}
		}
	}
	hi.step(link.Doubted{}) // within one history it does not last
}

func (hi *history) judged(number uint64, judgement Judgement, err error) {
	broken := judgement.Broken
	switch {
	case err != nil:
		hi.env.cfg.Log.Warn().Err(err).Msg("cannot judge the history of the hub, nothing is removed meanwhile")
		hi.step(link.Judged{Unknown: true})
		return
	case broken != "" && !hi.past.broken:
		hi.env.cfg.Log.Warn().Str("reason", broken).Msg("the history of the agent does not continue, nothing is removed before that is accepted")
	}
	hi.past.judged, hi.past.broken, hi.past.now = true, broken != "", judgement.Now
	hi.env.whole.follow(number, judgement)
	stale := judgement.Stale
	if broken != "" && !stale {
		hi.env.whole.catchUp() // what the cache has come to show
		stale = hi.unseen()
	}
	hi.step(link.Judged{Broken: broken, Stale: stale})
	hi.accept()
	hi.announce()
	hi.env.cfg.Judged()
	hi.observeAll(slices.Collect(maps.Keys(hi.commands.waiting)))
}

// begin notes that the history of the moment may be replaced.
func (hi *history) begin() {
	hi.past.broken, hi.past.replaced, hi.past.stored, hi.past.sent = false, hi.past.now.ID, "", 0
	hi.past.outdated = sentObject{} // it was of the one before
	hi.past.begins++
	hi.env.cfg.Judged()
	hi.env.cfg.Log.Info().Msg("nothing is held back on account of the history, a new one may begin")
}

// mayBegin says whether a new history may begin, and in place of which.
func (hi *history) mayBegin() (begin bool, replaces string) {
	id := hi.past.now.ID
	switch {
	case hi.session == nil || !hi.past.judged || hi.past.broken:
		return false, ""
	case hi.past.begins > 0 && id == hi.past.replaced:
		return true, id
	}
	return id == "", ""
}

// history is what Announce was last told.
func (hi *history) announced() stream.History {
	if h := hi.env.told.history.Load(); h != nil {
		return *h
	}
	return stream.History{}
}

// doubt has the history judged again when somebody asks for it, or the watch shows another
// one than it did when that was last asked for.
func (hi *history) doubt() {
	if asked := hi.env.told.doubted.Swap(false); hi.rules.Side == stream.Hub && (asked || hi.announced() != hi.past.seen) {
		hi.step(link.Doubted{})
	}
}

// accept passes on what Accept was last told, once: the same set that goes again later
// waits again, until Accept was told something else in between.
func (hi *history) accept() {
	id := hi.env.told.accept.Load()
	if id == nil || *id == "" || id == hi.spent {
		return
	}
	w := hi.link.Withheld()
	if *id != w.ID {
		return
	}
	hi.spent = id
	hi.env.cfg.Judged() // Stats tells
	hi.step(link.Accepted{ID: *id})
	if len(w.Ending) > 0 && hi.env.cfg.Cascades != nil {
		hi.env.cfg.Cascades.Accept(hi.rules.Agent)
		hi.removals.weigh()
	}
}

// announce tells the spoke where the history of the hub stands. A token that it
// keeps is a proof that it was there, so it gets none but of a read by which the
// history continues; and while the history does not continue, it has no name, since
// revisions cannot be compared.
func (hi *history) announce() {
	if hi.rules.Side != stream.Hub || hi.session == nil {
		return
	}
	h := hi.past.now
	switch {
	case !hi.past.judged:
		h = stream.History{ID: hi.announced().ID}
	case hi.past.broken, hi.past.begins > 0 && h.ID == hi.past.replaced:
		h = stream.History{}
	}
	hi.rules.HistoryID = h.ID
	if told := hi.past.announced; h.ID != told.ID || h.Token != told.Token {
		hi.tell(h)
	}
}

// tell tells the spoke where the history stands.
func (hi *history) tell(h stream.History) {
	if h.Token != "" {
		hi.past.tokens++
	}
	hi.past.announced = h
	hi.session.queue = append(hi.session.queue, h)
}

// heard takes what the peer says of the history.
func (hi *history) heard(h stream.History) {
	if hi.rules.Side == stream.Hub {
		if hi.past.echoes++; hi.past.echoes == hi.past.tokens && hi.past.confirm != nil {
			close(hi.past.confirm)
			hi.past.confirm = nil
		}
		if h.Token == hi.past.announced.Token { // else a late word on one before
			hi.past.stored = h.Token
			hi.env.cfg.Judged()
		}
		return
	}
	hi.rules.HistoryID = h.ID
	switch {
	case h.Token == "" || hi.env.cfg.Remember == nil:
		return
	case len(hi.past.unkept) == maxUnkept:
		hi.env.whole.breach(stream.ViolationLimit)
		return
	}
	hi.past.unkept = append(hi.past.unkept, h)
	if len(hi.past.unkept) == 1 {
		hi.remember()
	}
}

// maxUnkept is how many tokens a hub may have told that the spoke does not keep yet. It
// tells one, and another when it has waited for confirmTime: this is half an hour without
// the spoke's API server.
const maxUnkept = 64

// remember keeps the oldest token that is not kept, and then the others, one at a time:
// each asks the API server, however many the hub tells.
func (hi *history) remember() {
	s, hub, h := hi.session, hi.rules.HubUID, hi.past.unkept[0]
	hi.background(s, func(ctx context.Context) func() {
		err := hi.env.cfg.Remember(ctx, hub, h)
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
			if hi.past.unkept = hi.past.unkept[1:]; len(hi.past.unkept) > 0 {
				hi.remember()
			}
		}
	})
}

// unseen reports whether the link may take for there what the hub has no more: an
// object in the midst of a write, or one that only a write of ours has shown.
func (hi *history) unseen() bool {
	for key := range hi.jobs.AllRunning {
		if o := hi.view.Current(key); o == nil || o.Deleting() {
			return true // observe passes it over; finish looks
		}
	}
	return hi.view.Unseen() // verify tells
}
