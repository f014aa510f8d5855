package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// judgeTime bounds one judgement of the history.
const judgeTime = 10 * time.Second

// judge finds out whether the history of the hub continues, and tells the link.
func (l *loop) judge() {
	s := l.session
	if l.m.cfg.History == nil || s == nil {
		l.step(link.Judged{})
		return
	}
	l.background(s, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, judgeTime)
		defer cancel()
		broken, err := l.m.cfg.History(ctx, s.peer)
		return func() { l.judged(broken, err) }
	})
}

func (l *loop) judged(broken string, err error) {
	before := l.link.Withheld().Broken
	switch {
	case err != nil:
		l.m.cfg.Log.Warn().Err(err).Msg("cannot judge the history of the hub, nothing is removed meanwhile")
	case broken != "" && before == "":
		l.m.cfg.Log.Warn().Str("reason", broken).Msg("the history of the agent does not continue, nothing is removed before that is accepted")
	}
	l.step(link.Judged{Broken: broken, Unknown: err != nil})
	l.accept()
}

// accept passes on what Accept was last told.
func (l *loop) accept() {
	if id := l.m.accept.Load(); id != nil && *id != "" {
		l.step(link.Accepted{ID: *id})
	}
}

// announce tells the spoke where the history of the hub stands.
func (l *loop) announce() {
	if h := l.m.history.Load(); h != nil && l.session != nil && *h != l.announced {
		l.announced = *h
		l.queue = append(l.queue, *h)
	}
}

// heard takes what the peer says of the history.
func (l *loop) heard(h stream.History) {
	if l.rules.Side == stream.Hub {
		l.stored = h.Token
		return
	}
	s := l.session
	if h.Token == "" || l.m.cfg.Remember == nil {
		return
	}
	hub := l.rules.HubUID
	l.background(s, func(ctx context.Context) func() {
		if err := l.m.cfg.Remember(ctx, hub, h); err != nil {
			return nil // the connection ended first; the next one is told again
		}
		return func() { l.queue = append(l.queue, stream.History{Token: h.Token}) }
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
