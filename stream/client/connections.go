package client

import (
	"context"
	"maps"
	"slices"
	"time"
)

// connections are those of one run of a Client: which there are, and when the next one is
// due. They are of the goroutine of Run.
type connections struct {
	client   *Client
	reports  chan progress
	running  map[int]bool      // by number of the connection: whether it is up
	since    map[int]time.Time // when it came up
	dialling int               // the number of the one that is being dialled; zero for none
	last     int               // the number of the newest
	failures int               // in a row
	// proven is when the authority of the newest connection ends, proving that of
	// the one being dialled.
	proven, proving time.Time
	pause           *time.Timer
	resting         bool // until pause fires
	able            bool // to prove ourselves, at the last attempt
	// reprove fires when the principal wants to see another connection, which then is due.
	reprove *time.Timer
	due     bool
}

func newConnections(c *Client) *connections {
	r := &connections{
		client: c, reports: make(chan progress), running: map[int]bool{}, since: map[int]time.Time{},
		pause: time.NewTimer(0), resting: true, able: true, reprove: time.NewTimer(0),
	}
	r.reprove.Stop()
	return r
}

func (r *connections) anyUp() bool {
	return slices.Contains(slices.Collect(maps.Values(r.running)), true)
}

// dialDue dials a connection if one is due: there is none, or our identity is to be proven
// again.
func (r *connections) dialDue(ctx context.Context) {
	c, up := r.client, r.anyUp()
	c.show(up)
	ready := c.cfg.Ready() == nil
	renewed := up && (r.due || c.cfg.Proves().After(r.proven))
	if r.resting && !r.able && ready {
		r.resting = false // we can do now what we could not
	}
	if r.dialling != 0 || r.resting || up && !renewed {
		return
	}
	if renewed {
		c.cfg.Log.Debug().Msg("proving our identity on a new connection")
	}
	r.last++
	r.dialling, r.proving, r.able = r.last, c.cfg.Proves(), ready
	r.running[r.last] = false
	go c.connection(ctx, r.last, r.reports)
}

// await waits until every connection has ended.
func (r *connections) await() {
	for range len(r.running) {
		for p := range r.reports {
			if !p.up {
				break
			}
		}
	}
}

// handle takes what a connection reports.
func (r *connections) handle(p progress) {
	if p.connection == r.dialling {
		r.dialling = 0
	}
	if !p.up {
		r.ended(p)
		return
	}
	r.running[p.connection], r.since[p.connection], r.proven = true, time.Now(), r.proving
	if r.due = false; p.reproveAfter > 0 {
		r.reprove.Reset(p.reproveAfter)
	} else {
		r.reprove.Stop()
	}
}

// ended notes that a connection has ended, and sees to when the next one is due.
func (r *connections) ended(p progress) {
	c := r.client
	was, lasted := r.running[p.connection], time.Since(r.since[p.connection])
	c.failure.Store(&p.err) // what Failure says once none is up
	delete(r.running, p.connection)
	delete(r.since, p.connection)
	// Behind a proxy the end of the older may overtake the welcome of the newer.
	if was && (r.anyUp() || r.dialling != 0) {
		if revoked(p.err) { // what the newer one is told may say less
			c.cfg.Log.Error().Err(p.err).Msg(revokedMessage)
		} else {
			c.cfg.Log.Debug().Err(p.err).Msg("an older connection to the principal ended")
		}
		return
	}
	if r.failures++; was && lasted >= stableAfter {
		r.failures = 0
	}
	delay := c.cfg.BackOff.Pause(r.failures, p.err)
	c.logEnd(p.err, was, delay)
	r.resting = true
	r.pause.Reset(delay)
}
