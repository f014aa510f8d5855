package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Stats is a moment's view of a link.
type Stats struct {
	// Applications and AppProjects are the numbers of mirrored objects.
	Applications, AppProjects int
	// Agreed says that the peer is known to hold all we desire, and that no write
	// of ours is under way.
	Agreed bool
	// Withheld is what the hub holds back, since absence alone deletes nothing.
	Withheld link.Withheld
	// HistoryChecked says that the history was checked on this connection.
	HistoryChecked bool
	// Begin says that a new history may begin in place of the one with the id
	// Replaces, or that the first one may, when that is empty: the old one did not
	// continue, and nothing is held back on its account.
	Begin    bool
	Replaces string
	// Begins counts how often that came about on the connection.
	Begins int
	// Stored is the newest token that the spoke said it keeps; empty for none on
	// this connection.
	Stored string
	// AcceptUsed is what Accept was last told, once that was used; empty before. It is not
	// used again unless Accept was told something else in between.
	AcceptUsed string
	// Parked holds the entries that either side refused, and those of which a part was
	// left out.
	Parked map[stream.EntryKey]stream.Refusal
	// Over says which budget was exceeded within the last minute, and Delayed how many
	// objects wait for it to be written.
	Over    budget.Over
	Delayed int
	// Dropped holds the entries of which the API server that they went to does not keep
	// all, with the paths.
	Dropped map[stream.EntryKey][]string
}

// Stats returns an error when the mirror does not run, or ctx is done.
func (m *Mirror) Stats(ctx context.Context) (Stats, error) {
	reply := make(chan Stats, 1)
	if !m.do(ctx, func(l *loop) { reply <- l.stats() }) {
		return Stats{}, errors.New("mirror is not running")
	}
	return <-reply, nil
}

func (l *loop) stats() Stats {
	s := Stats{
		Applications:   l.link.Entries(stream.Applications),
		AppProjects:    l.link.Entries(stream.AppProjects),
		Agreed:         l.link.Agreed() && !l.answers.fights() && l.jobs.Len() == 0 && len(l.source.outbox.delayed) == 0,
		Withheld:       l.link.Withheld(),
		HistoryChecked: l.known.checked,
		Stored:         l.known.stored,
		Parked:         l.answers.parked(),
		Dropped:        l.link.AllDropped(),
	}
	if entry, refusal, is := l.source.projects.globalsRefusal(); is {
		s.Parked[entry] = refusal
	}
	if l.history.acceptUsed != nil && l.history.acceptUsed == l.env.settings.accept.Load() {
		s.AcceptUsed = *l.history.acceptUsed
	}
	s.Over, s.Delayed = l.jobs.Exceeded(time.Now())
	s.Begin, s.Replaces = l.history.mayBegin()
	s.Begins = l.known.begins
	return s
}
