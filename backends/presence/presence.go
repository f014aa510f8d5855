// Package presence says for how long an agent is away, as far as one principal of several
// may tell, and which of them has its link. It has no clock: who asks tells the time.
package presence

import "time"

// LinkState is what the Agent says of its link, whichever principal has it.
type LinkState struct {
	// Epoch is that of the newest claim; zero for none.
	Epoch int64
	// ObservedAt is when a principal last wrote that the agent was connected. It is by
	// the clock of that principal, and compared with nothing but its value before.
	ObservedAt time.Time
}

// staleTime is how long the time of the last observation stands still before a principal
// that had not the agent's last connection takes the agent for away. It is written once a
// minute while the agent is connected.
const staleTime = 90 * time.Second

// Presence is what one principal knows of who has the link. What the hub shows of what a
// spoke answered is for the principal that had its last checked connection: another one does
// not know it, and two that differ would write without end. It is of one goroutine.
type Presence struct {
	alone             bool      // there is but one process
	ours              bool      // a connection to this process was checked, and none elsewhere since
	claimed           int64     // the newest epoch that is ours; zero for none
	shown             LinkState // of the Agent
	since             time.Time // when ObservedAt was first seen with its value, by our clock
	disconnectedSince time.Time // since when there is no connection; zero while there is one
}

// New knows of no connection before now. alone says that there is but one process.
func New(alone bool, now time.Time) *Presence {
	return &Presence{alone: alone, since: now, disconnectedSince: now}
}

// Show takes what the Agent says. next is when an agent that is connected to another
// principal may be away unless more is shown; zero when nothing was seen of it.
func (p *Presence) Show(s LinkState, now time.Time) (next time.Time) {
	if s.ObservedAt != p.shown.ObservedAt {
		p.since = now
		next = now.Add(staleTime)
	}
	p.shown = s
	p.ours = p.ours && s.Epoch <= p.claimed
	return next
}

// Claim notes that a connection to this process was checked, and reports whether it had the
// link before.
func (p *Presence) Claim(epoch int64) (before bool) {
	before = p.ours
	p.ours, p.claimed = true, epoch
	return before
}

// Ours reports whether this process had the last checked connection.
func (p *Presence) Ours() bool { return p.ours || p.alone }

// Connect notes that there is a connection from now on.
func (p *Presence) Connect() { p.disconnectedSince = time.Time{} }

// Disconnect notes that there is none from now on.
func (p *Presence) Disconnect(now time.Time) { p.disconnectedSince = now }

// Connected reports whether there is a connection to this process.
func (p *Presence) Connected() bool { return p.disconnectedSince.IsZero() }

// Away is for how long the agent has been away as far as this process may tell; zero
// while it is not known to be.
func (p *Presence) Away(now time.Time) time.Duration {
	switch {
	case p.disconnectedSince.IsZero():
		return 0
	case p.Ours():
		return now.Sub(p.disconnectedSince)
	case now.Sub(p.since) >= staleTime:
		return now.Sub(p.since)
	}
	return 0
}

// AwayAt is when Away may next be as much as long.
func (p *Presence) AwayAt(long time.Duration) time.Time {
	if p.Ours() {
		return p.disconnectedSince.Add(long)
	}
	return p.since.Add(staleTime)
}
