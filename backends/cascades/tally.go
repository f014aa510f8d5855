package cascades

import (
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/link"
)

// A mass cascade is held: when more Applications than the Agent allows, and more than
// half of those that there were cascadeWindow before, are asked to go with their
// workloads, of one agent or of all together. Those count that were asked for within
// cascadeWindow, or are not yet gone. What was made in the cascadeWindow before it was
// asked to go counts neither way, and neither does what someone accepted.
const (
	// Few is how many Applications are never too many, unless an Agent says
	// otherwise.
	Few           = 10
	cascadeRatio  = 2 // more than one in so many is too many
	cascadeWindow = 5 * time.Minute
	// From more than Few on an agent's wait until for cascadePause none was asked
	// for, and all agents' once they are one in cascadeHint of all.
	cascadePause = 10 * time.Second
	cascadeHint  = 10
	// goneGrain is how exactly it is remembered when something went.
	goneGrain = 10 * time.Second
)

// tally counts the Applications of the agents of a hub that are asked to go with their
// workloads. Its methods are pure but for what it counts.
type tally struct {
	agents map[identity.AgentName]*agentTally
	// filling is how many agents are not counted yet, and seen when the last end was
	// seen that counts for all.
	filling int
	seen    time.Time
	// news are the agents of which the gate or the state has become another.
	news map[identity.AgentName]bool
}

// agentTally is what is counted of one agent.
type agentTally struct {
	name         identity.AgentName
	limit        int  // Cascades.Limit; zero holds nothing
	terminating  bool // the Agent goes with all that it has
	filling      bool
	established  int                  // made long enough ago, and not asked to go
	recent       map[string]time.Time // when what was made of late was made, by UID
	oldestRecent time.Time            // nothing of recent was made before
	asked        map[string]asking    // what is asked to go and not gone, by UID
	asking       int                  // those of asked that count
	gone         []GoneCount          // oldest first
	accepted     time.Time            // what was asked for until then is accepted
	seen         time.Time            // when the last end was seen that counts
	heldReason   string               // why ends wait for a person, for people
}

// asking is an Application that is asked to go with its workloads.
type asking struct {
	at       time.Time
	recent   bool
	accepted bool
}

func (a asking) counts() bool { return !a.recent && !a.accepted }

// GoneCount is how many Applications left the hub at about one time.
type GoneCount struct {
	At time.Time
	// Asked are those that went with their workloads, and Others all that went without.
	Asked, Others int
}

// late reports whether it is less than cascadeWindow from one moment to the other. Times
// are those of API servers and of processes whose clocks may have been ahead once, so one
// that lies far ahead is not of late, however long it stays so.
func late(from, to time.Time) bool { return to.Sub(from).Abs() < cascadeWindow }

// State is what of a tally of an agent must outlive a process.
type State struct {
	// Held says for people why ends wait for a person; empty when they do not.
	Held string
	// Accepted is until when what was asked for is accepted; zero for nothing.
	Accepted time.Time
	// Gone is what left the hub of late, oldest first.
	Gone []GoneCount
}

func newTally() tally {
	return tally{agents: map[identity.AgentName]*agentTally{}, news: map[identity.AgentName]bool{}}
}

// limit says what an Agent allows. An agent that was not known begins with what was
// kept of it, and is not counted before filled.
func (t *tally) limit(name identity.AgentName, limit int, departing bool, kept State) {
	a := t.agents[name]
	if a == nil {
		a = &agentTally{name: name, heldReason: kept.Held, accepted: kept.Accepted, gone: slices.Clone(kept.Gone)}
		t.agents[name] = a
		t.begin(name)
	}
	if a.limit == limit && a.terminating == departing {
		return
	}
	a.limit, a.terminating = limit, departing
	if !a.included() {
		a.heldReason = ""
	}
	t.news[name] = true
}

func (t *tally) forget(name identity.AgentName) {
	if t.agents[name] != nil {
		t.fill(t.agents[name])
		delete(t.agents, name)
	}
}

// fill takes an agent for counted, after which, perhaps, all are.
func (t *tally) fill(a *agentTally) {
	if !a.filling {
		return
	}
	a.filling = false
	if t.filling--; t.filling > 0 {
		return
	}
	for _, other := range t.agents {
		t.news[other.name] = t.news[other.name] || len(other.asked) > 0
	}
}

// begin forgets what there is of an agent, which is about to be noted again.
func (t *tally) begin(name identity.AgentName) {
	a := t.agents[name]
	if a == nil { // no one has said what its Agent allows
		t.limit(name, Few, false, State{})
		return
	}
	if !a.filling {
		a.filling = true
		t.filling++
	}
	a.accepted = a.acceptedUntil()
	a.established, a.recent, a.oldestRecent = 0, map[string]time.Time{}, time.Time{}
	a.asked, a.asking = map[string]asking{}, 0
}

// filled says that all that there is of an agent was noted since begin.
func (t *tally) filled(name identity.AgentName, now time.Time) {
	a := t.agents[name]
	t.fill(a)
	t.applyLimit(a, now)
}

// came notes an Application that is there.
func (t *tally) came(name identity.AgentName, uid string, created, now time.Time) {
	a := t.agents[name]
	if late(created, now) {
		a.recent[uid] = created
		if a.oldestRecent.IsZero() || created.Before(a.oldestRecent) {
			a.oldestRecent = created
		}
	} else {
		a.established++
	}
}

// remove takes an Application out of what is there and not asked to go. It is called for
// one that is.
func (a *agentTally) remove(uid string) (young bool) {
	if _, young = a.recent[uid]; young {
		delete(a.recent, uid)
	} else {
		a.established--
	}
	return young
}

// ask notes that an Application, which is not counted as there, was asked to go with its
// workloads. It reports whether someone has accepted that.
func (t *tally) ask(name identity.AgentName, uid string, created, at, now time.Time) (accepted bool) {
	a := t.agents[name]
	// What is seen later may have been asked for in the very second.
	asked := asking{at: at, recent: late(created, at), accepted: a.filling && a.accepts(at, now)}
	a.asked[uid] = asked
	if asked.counts() {
		a.asking++
		a.seen = now
		if a.included() {
			t.seen = now
		}
		t.applyLimit(a, now)
	}
	return asked.accepted
}

// went notes that an Application is no longer there. Released says that it was let go
// without its workloads on someone's word.
func (t *tally) went(name identity.AgentName, uid string, released bool, now time.Time) {
	a := t.agents[name]
	g := GoneCount{At: now.Truncate(goneGrain).Add(goneGrain)}
	if asked, was := a.asked[uid]; was {
		delete(a.asked, uid)
		if asked.counts() {
			a.asking--
		}
		if released || !asked.counts() {
			return
		}
		if asked.at.Before(now) {
			g.At = asked.at.Truncate(goneGrain).Add(goneGrain)
		}
		g.Asked = 1
	} else {
		a.age(now)
		if a.remove(uid) {
			return
		}
		g.Others = 1
	}
	i, there := slices.BinarySearchFunc(a.gone, g, func(a, b GoneCount) int { return a.At.Compare(b.At) })
	if !there {
		a.gone = slices.Insert(a.gone, i, GoneCount{At: g.At})
	}
	a.gone[i].Asked += g.Asked
	a.gone[i].Others += g.Others
	t.news[name] = true
}

// age moves on to now.
func (a *agentTally) age(now time.Time) {
	if len(a.recent) > 0 && now.Sub(a.oldestRecent) >= cascadeWindow {
		a.oldestRecent = now
		for uid, created := range a.recent {
			if !late(created, now) {
				delete(a.recent, uid)
				a.established++
			} else if created.Before(a.oldestRecent) {
				a.oldestRecent = created
			}
		}
	}
	a.gone = slices.DeleteFunc(a.gone, func(g GoneCount) bool { return !late(g.At, now) })
}

// sum returns how many were asked to go, and how many there were.
func (a *agentTally) sum(now time.Time) (asked, base int) {
	a.age(now)
	asked, base = a.asking, a.established+a.asking
	for _, g := range a.gone {
		asked, base = asked+g.Asked, base+g.Asked+g.Others
	}
	return asked, base
}

// included reports whether an agent's count has a meaning.
func (a *agentTally) included() bool { return a.limit > 0 && !a.terminating }

// total is sum over all agents.
func (t *tally) total(now time.Time) (asked, base int) {
	for _, a := range t.agents {
		if a.included() {
			more, of := a.sum(now)
			asked, base = asked+more, base+of
		}
	}
	return asked, base
}

func tooManyCascades(asked, base, limit int) bool { return asked > limit && asked*cascadeRatio > base }

// applyLimit holds back what is too much, after an end of a was seen.
func (t *tally) applyLimit(a *agentTally, now time.Time) {
	if !a.included() || a.filling {
		return
	}
	if asked, base := a.sum(now); tooManyCascades(asked, base, a.limit) {
		t.setHeld(a,
			fmt.Sprintf("more than %d and more than half of the agent's Applications are asked to go with their workloads",
				a.limit))
	}
	if t.filling > 0 {
		return
	}
	if asked, base := t.total(now); tooManyCascades(asked, base, Few) {
		for _, other := range t.agents {
			if len(other.asked) > 0 {
				t.setHeld(other,
					fmt.Sprintf("more than %d and more than half of the Applications of all agents are asked to go with their workloads", Few))
			}
		}
	}
}

func (t *tally) setHeld(a *agentTally, why string) {
	if a.heldReason == "" && a.included() {
		a.heldReason = why
		t.news[a.name] = true
	}
}

// idle says that no end of an agent waits any more.
func (t *tally) idle(name identity.AgentName) {
	t.agents[name].heldReason = ""
	t.news[name] = true
}

// accept says that someone accepted what was asked of an agent so far.
func (t *tally) accept(name identity.AgentName) {
	a := t.agents[name]
	for uid, asked := range a.asked {
		if asked.at.After(a.accepted) {
			a.accepted = asked.at
		}
		asked.accepted = true
		a.asked[uid] = asked
	}
	a.asking, a.gone, a.heldReason = 0, nil, ""
	t.news[name] = true
}

// acceptedUntil is accepted, as far as it names nothing that is not.
func (a *agentTally) acceptedUntil() time.Time {
	until := a.accepted
	for _, asked := range a.asked {
		if !asked.accepted && !asked.at.After(until) {
			until = asked.at.Add(-time.Second) // the API server's times are whole seconds
		}
	}
	return until
}

// accepts reports whether what was asked for then is among what was accepted before this
// process began. Of what was accepted by a clock that was ahead, only what was asked for by
// that clock: whatever is asked for since then would seem to be older.
func (a *agentTally) accepts(at, now time.Time) bool {
	ahead := func(t time.Time) bool { return t.After(now) && !late(t, now) }
	return !at.After(a.accepted) && (ahead(at) || !ahead(a.accepted))
}

// admission is what the link of an agent is to be told, and when to ask again; the zero time
// for not before something changes.
func (t *tally) admission(name identity.AgentName, now time.Time) (gate link.Cascades, again time.Time) {
	a := t.agents[name]
	if !a.included() || len(a.asked) == 0 {
		return link.Cascades{}, time.Time{}
	}
	gate.Held = a.heldReason
	if t.filling > 0 {
		gate.Counting = true
		return gate, time.Time{}
	}
	wait := func(seen time.Time, many bool) {
		if until := seen.Add(cascadePause); many && now.Before(until) {
			gate.Counting = true
			if again.Before(until) {
				again = until
			}
		}
	}
	asked, _ := a.sum(now)
	wait(a.seen, asked > min(Few, a.limit))
	asked, base := t.total(now)
	wait(t.seen, asked > Few && asked*cascadeHint >= base)
	return gate, again
}

// state is what of an agent must outlive the process; false when it is not known.
func (t *tally) state(name identity.AgentName) (State, bool) {
	a := t.agents[name]
	if a == nil {
		return State{}, false
	}
	s := State{Held: a.heldReason, Gone: slices.Clone(a.gone)}
	if a.filling {
		s.Accepted = a.accepted
	}
	for _, asked := range a.asked {
		if asked.accepted {
			s.Accepted = a.acceptedUntil()
			break
		}
	}
	return s, true
}
