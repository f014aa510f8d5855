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
	past past // what is known of the history
	// judgements counts those that began, on all connections.
	judgements uint64
	spent      *string // of Mirror.accept, what was used last; nil for nothing
}

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
func (hi *history) judge() {
	s := hi.session
	hi.past.seen = hi.announced()
	hi.judgements++
	number := hi.judgements
	places := hi.l.removals.places()
	if s == nil || hi.m.cfg.History == nil && len(places) == 0 {
		hi.step(link.Doomed{})
		hi.judged(number, Judgement{Now: hi.past.seen}, nil)
		return
	}
	known, outdated := Known{Sent: hi.past.sent, Begins: hi.past.begins}, hi.past.outdated
	hi.l.connection.background(s, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, judgeTime)
		defer cancel()
		var judgement Judgement
		behind, err := hi.m.isNewest(ctx, outdated)
		if err == nil {
			if behind {
				known.Behind = outdated.key.String()
			}
			judgement, err = hi.m.judgeHistory(ctx, s.peer, known)
		}
		var doomed map[string]string
		if err == nil && len(places) > 0 {
			doomed, err = hi.m.cfg.Places(ctx, places)
		}
		return func() {
			if errors.Is(err, ErrSuperseded) {
				// Else both ends might keep a connection on which nothing is judged.
				hi.l.connection.end()
				s.end(stream.GoodbyeSuperseded, err)
				return
			}
			hi.step(hi.l.removals.doomed(doomed))
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
	hi.l.connection.background(s, func(ctx context.Context) func() {
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

func (hi *history) judged(number uint64, judgement Judgement, err error) {
	broken := judgement.Broken
	switch {
	case err != nil:
		hi.m.cfg.Log.Warn().Err(err).Msg("cannot judge the history of the hub, nothing is removed meanwhile")
		hi.step(link.Judged{Unknown: true})
		return
	case broken != "" && !hi.past.broken:
		hi.m.cfg.Log.Warn().Str("reason", broken).Msg("the history of the agent does not continue, nothing is removed before that is accepted")
	}
	hi.past.judged, hi.past.broken, hi.past.now = true, broken != "", judgement.Now
	hi.l.connection.claim(judgement.Epoch)
	hi.l.witness.proofs.takeOver(judgement.Other)
	if broken == "" {
		hi.past.answered = number
	} else {
		// Whoever pressed them saw another state of the Application.
		for key := range hi.l.commands.waiting {
			hi.l.commands.stale[key] = "the history of hub and spoke does not continue: " + broken
		}
	}
	if broken != "" {
		hi.l.witness.unsee()
	}
	stale := judgement.Stale
	if broken != "" && !stale {
		hi.l.catchUp() // what the cache has come to show
		stale = hi.unseen()
	}
	hi.step(link.Judged{Broken: broken, Stale: stale})
	hi.accept()
	hi.announce()
	hi.m.cfg.Judged()
	hi.observeAll(slices.Collect(maps.Keys(hi.l.commands.waiting)))
}

// begin notes that the history of the moment may be replaced.
func (hi *history) begin() {
	hi.past.broken, hi.past.replaced, hi.past.stored, hi.past.sent = false, hi.past.now.ID, "", 0
	hi.past.outdated = sentObject{} // it was of the one before
	hi.past.begins++
	hi.m.cfg.Judged()
	hi.m.cfg.Log.Info().Msg("nothing is held back on account of the history, a new one may begin")
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

// named reports whether revisions of now can be told from those of another history.
// Where nobody judges histories, there is but one.
func (hi *history) named() bool { return hi.rules.HistoryID != "" || hi.m.cfg.History == nil }

// history is what Announce was last told.
func (hi *history) announced() stream.History {
	if h := hi.m.history.Load(); h != nil {
		return *h
	}
	return stream.History{}
}

// doubt has the history judged again when somebody asks for it, or the watch shows another
// one than it did when that was last asked for.
func (hi *history) doubt() {
	if asked := hi.m.doubted.Swap(false); hi.rules.Side == stream.Hub && (asked || hi.announced() != hi.past.seen) {
		hi.step(link.Doubted{})
	}
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

// accept passes on what Accept was last told, once: the same set that goes again later
// waits again, until Accept was told something else in between.
func (hi *history) accept() {
	id := hi.m.accept.Load()
	if id == nil || *id == "" || id == hi.spent {
		return
	}
	w := hi.link.Withheld()
	if *id != w.ID {
		return
	}
	hi.spent = id
	hi.m.cfg.Judged() // Stats tells
	hi.step(link.Accepted{ID: *id})
	if len(w.Ending) > 0 && hi.m.cfg.Cascades != nil {
		hi.m.cfg.Cascades.Accept(hi.rules.Agent)
		hi.l.removals.weigh()
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
	hi.l.connection.queue = append(hi.l.connection.queue, h)
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
			hi.m.cfg.Judged()
		}
		return
	}
	hi.rules.HistoryID = h.ID
	switch {
	case h.Token == "" || hi.m.cfg.Remember == nil:
		return
	case len(hi.past.unkept) == maxUnkept:
		hi.l.connection.breach(stream.ViolationLimit)
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
	hi.l.connection.background(s, func(ctx context.Context) func() {
		err := hi.m.cfg.Remember(ctx, hub, h)
		return func() {
			if errors.Is(err, ErrForgotten) {
				hi.l.connection.end()
				s.end("", err)
				return
			}
			if err == nil {
				// A token comes once a break is accepted, or when nothing had to be.
				hi.rules.Inherits = true
				hi.l.connection.queue = append(hi.l.connection.queue, stream.History{Token: h.Token})
			}
			if hi.past.unkept = hi.past.unkept[1:]; len(hi.past.unkept) > 0 {
				hi.remember()
			}
		}
	})
}
