// Package continuity checks, by quorum reads of an Agent, whether the history of the hub
// continues for one link, and has the Agent name the connection that has the link.
package continuity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/stream"
)

// readTime bounds the read of an Agent.
const readTime = 10 * time.Second

// claimAttempts bounds the reads for one claim: others write the status, too.
const claimAttempts = 5

// Record is the Agent as one consistent read shows it.
type Record struct {
	Agent v1alpha1.Agent
	// Revision is a resourceVersion of the hub that is not before the Agent.
	Revision uint64
	// Claim writes status.link of the Agent if it has not changed since it was read. It
	// returns an error that wraps stream.ErrConflict when it has.
	Claim func(ctx context.Context, link v1alpha1.AgentLink) error
}

// Config is what a Verifier needs. Fields without a stated default are required.
type Config struct {
	// Read reads the Agent of the link.
	Read func(ctx context.Context) (Record, error)
	// Hub is the identity of the hub; empty while it is not known.
	Hub func() string
	// Replica names this principal, and Life this start of it.
	Replica, Life string
	// CaughtUp reports whether the caches have nothing of the agent that the hub has not.
	CaughtUp func(ctx context.Context) (bool, error)
	// Restores is how often the hub was seen to go back since the link was made. Nil means
	// that no one looks.
	Restores func() int
	// ObserveRestores has Restores know of what was before the call. Nil means that it does.
	ObserveRestores func(ctx context.Context) error
}

// Verifier checks for one link. A call for a connection that has ended may still run beside
// that for the next one.
type Verifier struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	history fleet.HistoryVerifier
	other   int64 // epoch of the newest claim of another principal, or another start of this one
}

// New returns a Verifier that has checked nothing yet.
func New(cfg Config) *Verifier {
	if cfg.Restores == nil {
		cfg.Restores = func() int { return 0 }
	}
	if cfg.ObserveRestores == nil {
		cfg.ObserveRestores = func(context.Context) error { return nil }
	}
	return &Verifier{cfg: cfg}
}

// Verify is mirror.Config.History.
func (j *Verifier) Verify(ctx context.Context, peer mirror.Peer, known mirror.Known) (mirror.HistoryCheck, error) {
	hub := j.cfg.Hub()
	if hub == "" {
		return mirror.HistoryCheck{}, errors.New("the identity of the hub is not known yet")
	}
	reading, cancel := context.WithTimeout(ctx, readTime)
	record, err := j.claimLink(reading, peer)
	if err == nil {
		err = j.cfg.ObserveRestores(reading)
	}
	cancel()
	if err != nil {
		return mirror.HistoryCheck{}, err
	}
	kept := record.Agent.Status.History
	broken, err := j.compare(ctx,
		fleet.Reading{Hub: hub, Stored: kept, Revision: record.Revision, Restores: j.cfg.Restores()}, fleet.Connection{
			ID: peer.Connection,
			Shown: fleet.Shown{
				Hub: peer.Hello.HubUID, Token: peer.Hello.History.Token, Revision: peer.Hello.History.Revision,
				ClusterUID: peer.Hello.ClusterUID,
			},
			Sent: known.Sent, Behind: known.Behind, Begins: known.Begins,
		})
	if err != nil {
		return mirror.HistoryCheck{}, err
	}
	check := mirror.HistoryCheck{Broken: broken, Now: HistoryOf(kept, record.Revision),
		Epoch: record.Agent.Status.Link.Epoch, Other: j.otherEpoch()}
	if broken != "" {
		// A cache that has not seen the restore shows agreement where there is none.
		caughtUp, err := j.cfg.CaughtUp(ctx)
		if err != nil {
			return mirror.HistoryCheck{}, err
		}
		check.Stale = !caughtUp
	}
	return check, nil
}

// compare is HistoryVerifier.Verify for a connection that has not ended.
func (j *Verifier) compare(ctx context.Context, now fleet.Reading, c fleet.Connection) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return j.history.Verify(now, c), nil
}

// observeLink notes whether an Agent names another process. It counts for good, since the answer
// to a claim may be lost.
func (j *Verifier) observeLink(has *v1alpha1.AgentLink) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if has != nil && has.Life != j.cfg.Life {
		j.other = has.Epoch
	}
}

func (j *Verifier) otherEpoch() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.other
}

// claimLink has status.link of the Agent name the connection, and returns the Agent as one
// consistent read shows it. A write is tested on that read, so that of two principals the
// later one is seen by the other.
func (j *Verifier) claimLink(ctx context.Context, peer mirror.Peer) (record Record, err error) {
	want := v1alpha1.AgentLink{
		Replica: j.cfg.Replica, Life: j.cfg.Life, Connection: peer.Connection, Process: peer.Hello.Process,
		Turn: int64(peer.Hello.Turn),
	}
	for range claimAttempts {
		if record, err = j.cfg.Read(ctx); err != nil {
			return record, err
		}
		has := record.Agent.Status.Link
		j.observeLink(has)
		next := fleet.ClaimLink(has, want)
		switch next {
		case nil:
			return record, fmt.Errorf("%w, to principal %s", mirror.ErrSuperseded, has.Replica)
		case has:
			return record, nil
		}
		record.Agent.Status.Link = next
		if err = record.Claim(ctx, *next); err == nil || !errors.Is(err, stream.ErrConflict) {
			return record, err
		}
	}
	return record, err
}

// HistoryOf is what an agent is told of what the hub keeps, which was so at revision.
func HistoryOf(kept *v1alpha1.AgentHistory, revision uint64) stream.History {
	if kept == nil || len(kept.Tokens) == 0 {
		return stream.History{}
	}
	return stream.History{ID: kept.ID, Token: kept.Tokens[0], Revision: revision}
}
