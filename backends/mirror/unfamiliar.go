package mirror

import (
	"time"

	"github.com/argomesh/argomesh/stream/link"
)

// What the peer holds and the cache never showed is gone, or the cache is behind: an agent
// takes over from another one whose watch was ahead of its own, or a principal lives beside
// another. The API server itself says which, before anything goes for being absent. It is
// one read for each object that went while this process did not look.

// askUnfamiliar has the API server asked about what the link doubts.
func (l *loop) askUnfamiliar() {
	for _, entry := range l.link.Unfamiliar() {
		key, ours := l.rules.Local(entry)
		if !ours {
			l.step(link.Verified{Key: entry}) // there can be none
			continue
		}
		l.unfamiliar[key] = time.Time{}
		j := l.job(key)
		j.verify = true
		l.schedule(key, j)
	}
}

// familiar takes the answer, which was observed.
func (l *loop) familiar(o outcome) {
	switch _, asked := l.unfamiliar[o.key]; {
	case !asked:
	case !o.known:
		again := time.Now().Add(askPause)
		l.unfamiliar[o.key] = again
		l.lookAt(again)
	default:
		delete(l.unfamiliar, o.key)
		for _, entry := range l.rules.Keys(o.key) {
			if l.rules.sources(entry.Collection) {
				l.step(link.Verified{Key: entry})
			}
		}
	}
}

// askAgain asks again where the API server did not answer.
func (l *loop) askAgain() {
	for key, again := range l.unfamiliar {
		switch {
		case again.IsZero():
		case again.After(time.Now()):
			l.lookAt(again)
		default:
			l.unfamiliar[key] = time.Time{}
			j := l.job(key)
			j.verify = true
			l.schedule(key, j)
		}
	}
}
