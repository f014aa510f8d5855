// Package warmplan decides which last values are read that were not asked for, and when. It has
// no clock and reads nothing.
package warmplan

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
)

const (
	// warmAgentEvery and warmEvery are how far apart two keys are read that no one has asked
	// for: of an agent, and of all. So at most 5 and 100 are read in any second.
	warmAgentEvery = time.Second / 5
	warmEvery      = time.Second / 100
	// MaxWarm bounds the Applications that are remembered; more are not read.
	MaxWarm = 65536
	// maxShards bounds the parts of a tree that are read.
	maxShards = 256
	// warmAgain is how long an Application waits of which the spoke has nothing, or that
	// could not be read, and warmTries how often it is looked for what the spoke has not:
	// longer than its Argo CD takes to look at all Applications.
	warmAgain = time.Minute
	warmTries = 10
	// warmRest is how long an agent rests after a read that failed; twice as long after each
	// further one, up to warmRestMax. After warmFails the next Application has its turn.
	warmRest    = time.Second
	warmRestMax = time.Minute
	warmFails   = 3
	// warmBusy is when it is looked again whether there is room for an agent's reads.
	warmBusy = 250 * time.Millisecond
)

// Plan decides which key is read next of Applications that no one may have opened: of
// each one once after its agent has connected, and again when its resources have changed.
// It knows no clock and does no I/O.
type Plan struct {
	Agents map[identity.AgentName]*warmAgent // that are connected
	apps   map[appkey.Instance]*warmApp      // of these, at most most
	// under are the agents that are asked for a key, also on a connection that has ended.
	under map[identity.AgentName]bool
	most  int
	due   time.Time // none is read before
	turns uint64
	Waits int // Applications that wait, or are being read
}

// warmAgent is what there is to read of an agent, from one connection to the next.
type warmAgent struct {
	Name    identity.AgentName
	session string
	// apps are those that are remembered.
	apps map[*warmApp]struct{}
	// waiting are those to be read, in order, and later those to be tried again, by when.
	waiting, later []warmTurn
	// other says that the last one was of later, while others waited: they take turns.
	other bool
	// now is what is being read of one.
	now warmRead
	// due and rests are before when nothing is read: by its rate, and after a failure.
	due, rests time.Time
	rest       time.Duration // the last one
	turn       uint64        // when it had its last
	refuses    bool          // until it connects again
}

// warmApp is an Application. It is small: there is one for each of the hub.
type warmApp struct {
	instance appkey.Instance
	agent    *warmAgent
	content  uint64 // of its resources, as they were when it began to wait
	entry    uint32 // which warmTurn counts
	tries    uint8  // in which the spoke had nothing
	state    warmState
	again    bool // it has changed while it was read
}

type warmState uint8

const (
	warmDone warmState = iota
	warmWaiting
	warmLater
	warmReading
)

// warmTurn is an Application in a queue; the entry is another one when it is no more.
type warmTurn struct {
	app   *warmApp
	entry uint32
	at    time.Time // of later
}

func (t warmTurn) counts() bool { return t.app.entry == t.entry && t.app.agent != nil }

// warmRead is how far the reading of an Application is: part 0 is its tree, 1 its managed
// resources, and those behind are further parts of the tree.
type warmRead struct {
	app                  *warmApp // nil for none
	part, shards, failed int
}

// Job is one key to be read.
type Job struct {
	Agent    *warmAgent
	Instance appkey.Instance
	Family   string
	Shard    int
}

// New returns a plan that knows of no agent yet.
func New(most int) *Plan {
	return &Plan{Agents: map[identity.AgentName]*warmAgent{}, apps: map[appkey.Instance]*warmApp{},
		under: map[identity.AgentName]bool{}, most: most}
}

// Connect takes note of a connection, and reports whether it is another one than before: then
// all of the agent's Applications are to be seen.
func (p *Plan) Connect(name identity.AgentName, session string) bool {
	before := p.Agents[name]
	if before != nil && before.session == session {
		return false
	}
	a := &warmAgent{Name: name, session: session, apps: map[*warmApp]struct{}{}}
	if before != nil {
		a.due, a.turn = before.due, before.turn // its rate is that of the agent
		p.Disconnect(name)
	}
	p.Agents[name] = a
	return true
}

// Disconnect forgets an agent.
func (p *Plan) Disconnect(name identity.AgentName) {
	a := p.Agents[name]
	if a == nil {
		return
	}
	p.drop(a)
	delete(p.Agents, name)
}

// drop forgets all Applications of an agent.
func (p *Plan) drop(a *warmAgent) {
	for app := range a.apps {
		p.remove(app)
	}
	a.waiting, a.later, a.now = nil, nil, warmRead{}
}

// remove forgets an Application.
func (p *Plan) remove(app *warmApp) {
	p.setState(app, warmDone)
	delete(p.apps, app.instance)
	delete(app.agent.apps, app)
	if app.agent.now.app == app {
		app.agent.now = warmRead{}
	}
	app.agent = nil
}

// Forget takes note that an Application is no agent's that is connected.
func (p *Plan) Forget(i appkey.Instance) {
	if app := p.apps[i]; app != nil {
		p.remove(app)
	}
}

// See takes note of an Application and what its resources are; false when there is no room
// for it.
func (p *Plan) See(name identity.AgentName, i appkey.Instance, content uint64) bool {
	a, app := p.Agents[name], p.apps[i]
	if app != nil && app.agent != a {
		p.remove(app)
		app = nil
	}
	switch {
	case a == nil || a.refuses:
		return true
	case app == nil && len(p.apps) >= p.most:
		return false
	case app == nil:
		app = &warmApp{instance: i, agent: a, content: content}
		p.apps[i] = app
		a.apps[app] = struct{}{}
	case app.content == content:
		return true
	}
	app.content, app.tries = content, 0
	p.wait(app)
	return true
}

// wait has an Application read, in its turn.
func (p *Plan) wait(app *warmApp) {
	switch app.state {
	case warmWaiting:
	case warmReading:
		app.again = true
	default:
		p.setState(app, warmWaiting)
		app.entry++
		app.agent.waiting = app.agent.queued(app.agent.waiting, warmTurn{app: app, entry: app.entry})
	}
}

// setState sets the state of an Application.
func (p *Plan) setState(app *warmApp, state warmState) {
	if app.state != warmDone {
		p.Waits--
	}
	if state != warmDone {
		p.Waits++
	}
	app.state = state
}

// Next returns the key that is read now. If there is none, again is when to ask for one
// again, and zero when that takes an event. Free reports whether there is room for a read from an
// agent. Of those with something to read it is the turn of who had none for the longest time.
func (p *Plan) Next(now time.Time, free func(identity.AgentName) bool) (job Job, ok bool, again time.Time) {
	sooner := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	var turn *warmAgent
	for name, a := range p.Agents {
		at, waits := a.ready()
		switch {
		case !waits || p.under[name]:
		case now.Before(at):
			sooner(at)
		case turn != nil && turn.turn < a.turn:
		case !free(name):
			sooner(now.Add(warmBusy))
		default:
			turn = a
		}
	}
	switch {
	case turn == nil:
		return Job{}, false, again
	case now.Before(p.due):
		return Job{}, false, p.due
	}
	p.turns++
	p.due, turn.due, turn.turn = now.Add(warmEvery), now.Add(warmAgentEvery), p.turns
	p.under[turn.Name] = true
	return p.begin(turn, now), true, time.Time{}
}

// ready returns from when on something can be read, and whether there is anything.
func (a *warmAgent) ready() (at time.Time, waits bool) {
	if a.refuses {
		return at, false
	}
	at = a.due
	if a.rests.After(at) {
		at = a.rests
	}
	a.waiting, a.later = counting(a.waiting), counting(a.later)
	switch {
	case a.now.app != nil || len(a.waiting) > 0:
		return at, true
	case len(a.later) == 0:
		return at, false
	case a.later[0].at.After(at):
		at = a.later[0].at
	}
	return at, true
}

// queued adds a turn to a queue of the agent. Of Applications that come and go the turns stay behind; they are taken
// out once they are more than those of the Applications that there are.
func (a *warmAgent) queued(queue []warmTurn, turn warmTurn) []warmTurn {
	if len(queue) >= 2*len(a.apps)+fewTurns {
		queue = slices.DeleteFunc(queue, func(t warmTurn) bool { return !t.counts() })
	}
	return append(queue, turn)
}

// fewTurns are not worth looking through a queue.
const fewTurns = 64

// counting leaves out what counts no more at the begin of a queue.
func counting(queue []warmTurn) []warmTurn {
	for len(queue) > 0 && !queue[0].counts() {
		queue = queue[1:]
	}
	return queue
}

// begin returns the next key of an agent that has one.
func (p *Plan) begin(a *warmAgent, now time.Time) Job {
	if a.now.app == nil {
		queue := &a.waiting
		due := len(a.later) > 0 && !now.Before(a.later[0].at)
		if a.other = due && !a.other; len(a.waiting) == 0 || a.other {
			queue = &a.later
		}
		a.now = warmRead{app: (*queue)[0].app}
		*queue = (*queue)[1:]
		p.setState(a.now.app, warmReading)
	}
	job := Job{Agent: a, Instance: a.now.app.instance, Family: appkey.ResourcesTree}
	switch part := a.now.part; {
	case part == 1:
		job.Family = appkey.ManagedResources
	case part > 1:
		job.Shard = part - 1
	}
	return job
}

// Result is what became of a key.
type Result string

// As the metrics have them.
const (
	Kept    Result = "kept"
	Long    Result = "long"    // longer than what is kept
	Excess  Result = "excess"  // more than passes
	Missing Result = "missing" // the spoke does not have it
	Failed  Result = "failed"  // the agent, or its Redis, does not answer
	Format  Result = "format"  // the agent keeps another one
	Refused Result = "refused" // the agent lets no one read
	Moved   Result = "moved"   // the Application is no longer that agent's
	// Limit is that an Application is not remembered.
	Limit Result = "limit"
)

// Done takes what became of a key that next returned, and of a tree in how many parts it is.
func (p *Plan) Done(job Job, result Result, shards int, now time.Time) {
	a := job.Agent
	delete(p.under, a.Name)
	app := a.now.app
	if app == nil || app.instance != job.Instance || p.Agents[a.Name] != a {
		return // it is forgotten
	}
	if result != Failed {
		a.rest, a.now.failed = 0, 0
	}
	switch result {
	case Format, Refused:
		p.drop(a)
		a.refuses = true
	case Moved:
		p.remove(app)
	case Failed:
		p.failed(a, now)
	case Missing:
		if app.tries++; app.tries < warmTries {
			p.end(a, now.Add(warmAgain))
		} else {
			p.end(a, time.Time{})
		}
	default:
		if a.now.part == 0 {
			a.now.shards = min(shards, maxShards)
		}
		if a.now.part++; a.now.part > max(a.now.shards, 1) {
			app.tries = 0
			p.end(a, time.Time{})
		}
	}
}

// failed lets an agent rest.
func (p *Plan) failed(a *warmAgent, now time.Time) {
	a.rest = min(max(2*a.rest, warmRest), warmRestMax)
	a.rests = now.Add(a.rest)
	if a.now.failed++; a.now.failed >= warmFails {
		p.end(a, now.Add(warmAgain))
	}
}

// end ends the reading of an Application, which is read again later, at once when it has
// changed meanwhile, or, with the zero time, when it changes.
func (p *Plan) end(a *warmAgent, later time.Time) {
	app := a.now.app
	a.now = warmRead{}
	switch {
	case app.again:
		app.again = false
		p.setState(app, warmDone)
		p.wait(app)
	case later.IsZero():
		p.setState(app, warmDone)
	default:
		p.setState(app, warmLater)
		app.entry++
		a.later = a.queued(a.later, warmTurn{app: app, entry: app.entry, at: later})
	}
}
