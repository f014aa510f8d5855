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

// judgeTime bounds one judgement of the history. One that finds it broken may wait for
// a list of all that the hub has.
const judgeTime = 2 * time.Minute

// past is what a connection knows of the history.
type past struct {
	judged bool
	broken bool
	now    stream.History // by the last judgement
	// answered is the number of the newest judgement by which the history goes on; zero
	// when there was none.
	answered uint64
	seen     stream.History // what Announce had told when that was asked for
	sent     uint64         // the highest resourceVersion that was sent
	// outdated is the last object that was sent and that the spoke has of a later
	// revision; the zero value is none.
	outdated sentObject
	// begins counts how often a new history could begin in place of the one with id
	// replaced.
	begins   int
	replaced string
	// stored is the newest token that the spoke said it keeps, and announced what it
	// was last told.
	stored    string
	announced stream.History
	// tokens counts those that the spoke was told, and echoes what it said of them.
	// confirm is closed when it has said something of all; nil while nobody waits.
	tokens, echoes int
	confirm        chan struct{}
	// unkept are on the spoke what the hub told and is not kept yet, the oldest first.
	unkept []stream.History
}

// judge finds out whether the history of the hub continues, and tells the link.
func (l *loop) judge() {
	s := l.session
	l.past.seen = l.history()
	l.judgements++
	number := l.judgements
	places := l.places()
	if s == nil || l.m.cfg.History == nil && len(places) == 0 {
		l.step(link.Doomed{})
		l.judged(number, Judgement{Now: l.past.seen}, nil)
		return
	}
	known, outdated := Known{Sent: l.past.sent, Begins: l.past.begins}, l.past.outdated
	l.background(s, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, judgeTime)
		defer cancel()
		var judgement Judgement
		behind, err := l.m.isNewest(ctx, outdated)
		if err == nil {
			if behind {
				known.Behind = outdated.key.String()
			}
			judgement, err = l.m.judgeHistory(ctx, s.peer, known)
		}
		var doomed map[string]string
		if err == nil && len(places) > 0 {
			doomed, err = l.m.cfg.Places(ctx, places)
		}
		return func() {
			if errors.Is(err, ErrSuperseded) {
				// Else both ends might keep a connection on which nothing is judged.
				l.end()
				s.end(stream.GoodbyeSuperseded, err)
				return
			}
			l.step(l.doomed(doomed))
			switch {
			case known.Begins != l.past.begins: // it is about the history before
				l.step(link.Judged{Unknown: true})
				l.step(link.Doubted{})
			case err == nil && judgement.Broken == "" && judgement.Now.Token != "" && l.rules.Mode == stream.Autonomous:
				l.confirm(s, judgement.Now, func(err error) { l.judged(number, judgement, err) })
			default:
				l.judged(number, judgement, err)
			}
		}
	})
}

// confirmTime is how long a spoke may take to say what it keeps.
const confirmTime = 30 * time.Second

// confirm lets the spoke say that it still keeps the history, before then: what is
// missing on a spoke that was restored on this connection was not deleted there. The
// hello, from before the restore, does not tell.
func (l *loop) confirm(s *session, h stream.History, then func(error)) {
	l.tellHistory(h)
	confirmed := make(chan struct{})
	l.past.confirm = confirmed
	l.background(s, func(ctx context.Context) func() {
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

// judgeHistory is Config.History.
func (m *Mirror) judgeHistory(ctx context.Context, peer Peer, known Known) (Judgement, error) {
	if m.cfg.History == nil {
		return Judgement{}, nil
	}
	return m.cfg.History(ctx, peer, known)
}

// sentObject is an object as it was when it was sent.
type sentObject struct {
	entry                stream.EntryKey
	key                  stream.ResourceKey
	uid, resourceVersion string
}

// contradicted notes whether the spoke has an Application as it was later than what was
// sent of it. From a cache that is behind that is so for a while.
func (l *loop) contradicted(a link.Settled) {
	switch {
	case a.Refusal == nil || a.Refusal.Kind != stream.RefusalOutdated:
		if a.Key == l.past.outdated.entry {
			l.past.outdated = sentObject{}
		}
		return
	case a.Key.Collection == stream.Applications && a.Current:
		key, _ := l.rules.Local(a.Key)
		if o := l.current(key); o != nil {
			l.past.outdated = sentObject{entry: a.Key, key: key, uid: o.uid(), resourceVersion: o.meta("resourceVersion")}
		}
	}
	l.step(link.Doubted{}) // within one history it does not last
}

// isNewest reports whether an object that was sent is still what the hub has of it.
func (m *Mirror) isNewest(ctx context.Context, sent sentObject) (bool, error) {
	if sent == (sentObject{}) {
		return false, nil
	}
	o, err := m.cfg.Store.Read(ctx, sent.key)
	if errors.Is(err, stream.ErrNotFound) {
		return false, nil
	}
	return err == nil && o.UID == sent.uid && o.ResourceVersion == sent.resourceVersion, err
}

func (l *loop) judged(number uint64, judgement Judgement, err error) {
	broken := judgement.Broken
	switch {
	case err != nil:
		l.m.cfg.Log.Warn().Err(err).Msg("cannot judge the history of the hub, nothing is removed meanwhile")
		l.step(link.Judged{Unknown: true})
		return
	case broken != "" && !l.past.broken:
		l.m.cfg.Log.Warn().Str("reason", broken).Msg("the history of the agent does not continue, nothing is removed before that is accepted")
	}
	l.past.judged, l.past.broken, l.past.now = true, broken != "", judgement.Now
	l.claim(judgement.Epoch)
	l.proofs.takeOver(judgement.Other)
	if broken == "" {
		l.past.answered = number
	} else {
		// Whoever pressed them saw another state of the Application.
		for key := range l.waiting {
			l.stale[key] = "the history of hub and spoke does not continue: " + broken
		}
	}
	if broken != "" {
		l.unsee()
	}
	stale := judgement.Stale
	if broken != "" && !stale {
		l.catchUp() // what the cache has come to show
		stale = l.unseen()
	}
	l.step(link.Judged{Broken: broken, Stale: stale})
	l.accept()
	l.announce()
	l.m.cfg.Judged()
	l.observeAll(slices.Collect(maps.Keys(l.waiting)))
}

// beginHistory notes that the history of the moment may be replaced.
func (l *loop) beginHistory() {
	l.past.broken, l.past.replaced, l.past.stored, l.past.sent = false, l.past.now.ID, "", 0
	l.past.outdated = sentObject{} // it was of the one before
	l.past.begins++
	l.m.cfg.Judged()
	l.m.cfg.Log.Info().Msg("nothing is held back on account of the history, a new one may begin")
}

// mayBegin says whether a new history may begin, and in place of which.
func (l *loop) mayBegin() (begin bool, replaces string) {
	id := l.past.now.ID
	switch {
	case l.session == nil || !l.past.judged || l.past.broken:
		return false, ""
	case l.past.begins > 0 && id == l.past.replaced:
		return true, id
	}
	return id == "", ""
}

// named reports whether revisions of now can be told from those of another history.
// Where nobody judges histories, there is but one.
func (l *loop) named() bool { return l.rules.HistoryID != "" || l.m.cfg.History == nil }

// history is what Announce was last told.
func (l *loop) history() stream.History {
	if h := l.m.history.Load(); h != nil {
		return *h
	}
	return stream.History{}
}

// doubt has the history judged again when somebody asks for it, or the watch shows another
// one than it did when that was last asked for.
func (l *loop) doubt() {
	if asked := l.m.doubted.Swap(false); l.rules.Side == stream.Hub && (asked || l.history() != l.past.seen) {
		l.step(link.Doubted{})
	}
}

// unseen reports whether the link may take for there what the hub has no more: an
// object in the midst of a write, or one that only a write of ours has shown.
func (l *loop) unseen() bool {
	for key, j := range l.jobs {
		if !j.running {
			continue
		}
		if o := l.current(key); o == nil || o.deleting() {
			return true // observe passes it over; finish looks
		}
	}
	for key, a := range l.ahead {
		if a.object == nil {
			continue
		}
		if cached, ok := l.m.cfg.Store.Get(key); !ok || cached.UID != a.object.UID {
			return true // verify tells
		}
	}
	return false
}

// accept passes on what Accept was last told, once: the same set that goes again later
// waits again, until Accept was told something else in between.
func (l *loop) accept() {
	id := l.m.accept.Load()
	if id == nil || *id == "" || id == l.spent {
		return
	}
	w := l.link.Withheld()
	if *id != w.ID {
		return
	}
	l.spent = id
	l.m.cfg.Judged() // Stats tells
	l.step(link.Accepted{ID: *id})
	if len(w.Ending) > 0 && l.m.cfg.Cascades != nil {
		l.m.cfg.Cascades.accept(l.rules.Agent)
		l.weighCascades()
	}
}

// announce tells the spoke where the history of the hub stands. A token that it
// keeps is a proof that it was there, so it gets none but of a read by which the
// history continues; and while the history does not continue, it has no name, since
// revisions cannot be compared.
func (l *loop) announce() {
	if l.rules.Side != stream.Hub || l.session == nil {
		return
	}
	h := l.past.now
	switch {
	case !l.past.judged:
		h = stream.History{ID: l.history().ID}
	case l.past.broken, l.past.begins > 0 && h.ID == l.past.replaced:
		h = stream.History{}
	}
	l.rules.HistoryID = h.ID
	if told := l.past.announced; h.ID != told.ID || h.Token != told.Token {
		l.tellHistory(h)
	}
}

// tellHistory tells the spoke where the history stands.
func (l *loop) tellHistory(h stream.History) {
	if h.Token != "" {
		l.past.tokens++
	}
	l.past.announced = h
	l.queue = append(l.queue, h)
}

// heard takes what the peer says of the history.
func (l *loop) heard(h stream.History) {
	if l.rules.Side == stream.Hub {
		if l.past.echoes++; l.past.echoes == l.past.tokens && l.past.confirm != nil {
			close(l.past.confirm)
			l.past.confirm = nil
		}
		if h.Token == l.past.announced.Token { // else a late word on one before
			l.past.stored = h.Token
			l.m.cfg.Judged()
		}
		return
	}
	l.rules.HistoryID = h.ID
	switch {
	case h.Token == "" || l.m.cfg.Remember == nil:
		return
	case len(l.past.unkept) == maxUnkept:
		l.breach(stream.ViolationLimit)
		return
	}
	l.past.unkept = append(l.past.unkept, h)
	if len(l.past.unkept) == 1 {
		l.remember()
	}
}

// maxUnkept is how many tokens a hub may have told that the spoke does not keep yet. It
// tells one, and another when it has waited for confirmTime: this is half an hour without
// the spoke's API server.
const maxUnkept = 64

// remember keeps the oldest token that is not kept, and then the others, one at a time:
// each asks the API server, however many the hub tells.
func (l *loop) remember() {
	s, hub, h := l.session, l.rules.HubUID, l.past.unkept[0]
	l.background(s, func(ctx context.Context) func() {
		err := l.m.cfg.Remember(ctx, hub, h)
		return func() {
			if errors.Is(err, ErrForgotten) {
				l.end()
				s.end("", err)
				return
			}
			if err == nil {
				// A token comes once a break is accepted, or when nothing had to be.
				l.rules.Inherits = true
				l.queue = append(l.queue, stream.History{Token: h.Token})
			}
			if l.past.unkept = l.past.unkept[1:]; len(l.past.unkept) > 0 {
				l.remember()
			}
		}
	})
}

// background runs f beside the loop for as long as s lasts, and what it returns on
// the loop, if s is still the session by then.
func (l *loop) background(s *session, f func(context.Context) func()) {
	l.spawn = append(l.spawn, func(ctx context.Context) {
		life, cancel := context.WithCancel(ctx)
		defer cancel()
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-s.over:
				cancel()
			case <-over:
			}
		}()
		then := f(life)
		if then == nil {
			return
		}
		// When the loop has ended nobody is left to tell.
		_ = l.m.do(ctx, func(l *loop) {
			if l.session == s {
				then()
			}
		})
	})
}
