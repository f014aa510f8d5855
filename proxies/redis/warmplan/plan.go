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
	// warmRetry is how long an Application waits of which the spoke has nothing, or that
	// could not be read, and warmTries how often what the spoke does not have is read again:
	// longer than its Argo CD takes to look at all Applications.
	warmRetry = time.Minute
	warmTries = 10
	// warmBackOff is how long nothing is read of an agent after a read that failed; twice
	// as long after each further one, up to warmBackOffMax. After warmFails the next Application is
	// read.
	warmBackOff    = time.Second
	warmBackOffMax = time.Minute
	warmFails      = 3
	// warmBusy is how long a read waits until it is checked again whether callers leave room.
	warmBusy = 250 * time.Millisecond
)

// Plan decides which key is read next of Applications that no one may have opened: of
// each one once after its agent has connected, and again when its resources have changed.
// It knows no clock and does no I/O.
type Plan struct {
	Agents map[identity.AgentName]*warmAgent // that are connected
	apps   map[appkey.Instance]*warmApp      // of these, at most most
	// reading are the agents that are asked for a key, also on a connection that has ended.
	reading map[identity.AgentName]bool
	most    int
	due     time.Time // none is read before
	served  uint64    // how many keys were returned
	Waiting int       // Applications that wait, or are being read
}

// warmAgent is what there is to read of an agent, from one connection to the next.
type warmAgent struct {
	Name    identity.AgentName
	session string
	// apps are those that are remembered.
	apps map[*warmApp]struct{}
	// waiting are those to be read, in order, and later those to be tried again, by when.
	waiting, later []queueEntry
	// fromLater says that the last one was of later, while others waited: the two alternate.
	fromLater bool
	// now is what is being read of one.
	now warmRead
	// due and backOffUntil are before when nothing is read: by its rate, and after a failure.
	due, backOffUntil time.Time
	backOff           time.Duration // the last one
	served            uint64        // the number of its last key among all
	refuses           bool          // until it connects again
}

// warmApp is an Application. It is small: there is one for each of the hub.
type warmApp struct {
	instance appkey.Instance
	agent    *warmAgent
	content  uint64 // of its resources, as they were when it began to wait
	entry    uint32 // which queueEntry counts
	tries    uint8  // in which the spoke had nothing
	state    warmState
	changed  bool // while it was read
}

type warmState uint8

const (
	warmDone warmState = iota
	warmWaiting
	warmLater
	warmReading
)

// queueEntry is an Application in a queue; the entry is another one when it is no more.
type queueEntry struct {
	app   *warmApp
	entry uint32
	at    time.Time // of later
}

func (e queueEntry) counts() bool { return e.app.entry == e.entry && e.app.agent != nil }

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
		reading: map[identity.AgentName]bool{}, most: most}
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
		a.due, a.served = before.due, before.served // its rate is that of the agent
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

// Observe takes note of an Application and what its resources are; false when there is no room
// for it.
func (p *Plan) Observe(name identity.AgentName, i appkey.Instance, content uint64) bool {
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

// wait has an Application read, after those that wait already.
func (p *Plan) wait(app *warmApp) {
	switch app.state {
	case warmWaiting:
	case warmReading:
		app.changed = true
	default:
		p.setState(app, warmWaiting)
		app.entry++
		app.agent.waiting = app.agent.enqueue(app.agent.waiting, queueEntry{app: app, entry: app.entry})
	}
}

// setState sets the state of an Application.
func (p *Plan) setState(app *warmApp, state warmState) {
	if app.state != warmDone {
		p.Waiting--
	}
	if state != warmDone {
		p.Waiting++
	}
	app.state = state
}

// Next returns the key that is read now. If there is none, retryAt is when to ask for one
// again, and zero when that takes an event. Free reports whether there is room for a read from an
// agent. Of those with something to read it takes the agent that was not read from for
// the longest time.
func (p *Plan) Next(now time.Time, free func(identity.AgentName) bool) (job Job, ok bool, retryAt time.Time) {
	sooner := func(at time.Time) {
		if retryAt.IsZero() || at.Before(retryAt) {
			retryAt = at
		}
	}
	var next *warmAgent
	for name, a := range p.Agents {
		at, waits := a.ready()
		switch {
		case !waits || p.reading[name]:
		case now.Before(at):
			sooner(at)
		case next != nil && next.served < a.served:
		case !free(name):
			sooner(now.Add(warmBusy))
		default:
			next = a
		}
	}
	switch {
	case next == nil:
		return Job{}, false, retryAt
	case now.Before(p.due):
		return Job{}, false, p.due
	}
	p.served++
	p.due, next.due, next.served = now.Add(warmEvery), now.Add(warmAgentEvery), p.served
	p.reading[next.Name] = true
	return p.begin(next, now), true, time.Time{}
}

// ready returns from when on something can be read, and whether there is anything.
func (a *warmAgent) ready() (at time.Time, waits bool) {
	if a.refuses {
		return at, false
	}
	at = a.due
	if a.backOffUntil.After(at) {
		at = a.backOffUntil
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

// enqueue adds an entry to a queue of the agent. Of Applications that come and go the entries
// stay behind; they are taken out once they are more than those of the Applications that there are.
func (a *warmAgent) enqueue(queue []queueEntry, e queueEntry) []queueEntry {
	if len(queue) >= 2*len(a.apps)+fewEntries {
		queue = slices.DeleteFunc(queue, func(e queueEntry) bool { return !e.counts() })
	}
	return append(queue, e)
}

// fewEntries are not worth going through a queue.
const fewEntries = 64

// counting leaves out what counts no more at the begin of a queue.
func counting(queue []queueEntry) []queueEntry {
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
		if a.fromLater = due && !a.fromLater; len(a.waiting) == 0 || a.fromLater {
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

// Done takes what became of a key that Next returned, and of a tree in how many parts it is.
func (p *Plan) Done(job Job, result Result, shards int, now time.Time) {
	a := job.Agent
	delete(p.reading, a.Name)
	app := a.now.app
	if app == nil || app.instance != job.Instance || p.Agents[a.Name] != a {
		return // it is forgotten
	}
	if result != Failed {
		a.backOff, a.now.failed = 0, 0
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
			p.end(a, now.Add(warmRetry))
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

// failed has nothing read of an agent for a while.
func (p *Plan) failed(a *warmAgent, now time.Time) {
	a.backOff = min(max(2*a.backOff, warmBackOff), warmBackOffMax)
	a.backOffUntil = now.Add(a.backOff)
	if a.now.failed++; a.now.failed >= warmFails {
		p.end(a, now.Add(warmRetry))
	}
}

// end ends the reading of an Application, which is read again later, at once when it has
// changed meanwhile, or, with the zero time, when it changes.
func (p *Plan) end(a *warmAgent, later time.Time) {
	app := a.now.app
	a.now = warmRead{}
	switch {
	case app.changed:
		app.changed = false
		p.setState(app, warmDone)
		p.wait(app)
	case later.IsZero():
		p.setState(app, warmDone)
	default:
		p.setState(app, warmLater)
		app.entry++
		a.later = a.enqueue(a.later, queueEntry{app: app, entry: app.entry, at: later})
	}
}
