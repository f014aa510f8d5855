package mirror_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// The etcd of a spoke is restored while its agent lives: what the agent took since is
// gone from the Application. A command is not run again, and says so; a request is made
// again.
func TestSpokeIsRestoredWhileItsAgentLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		backup := r.spoke.store.Snapshot()
		r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{}} })
		r.update(r.hub, "a", func(app m) {
			app["metadata"].(m)["annotations"] = m{"argocd.argoproj.io/refresh": "hard"}
		})
		pass(time.Second)
		if r.get(r.spoke, "a")["operation"] == nil {
			t.Fatal("the spoke has no operation")
		}
		r.spoke.store.Restore(backup, 0)
		pass(time.Minute)
		app := r.get(r.hub, "a")
		message, _ := at(app, "status", "operationState", "message").(string)
		if app["operation"] != nil || r.phase(r.hub, "a") != "Error" || !strings.Contains(message, "it is not run again") {
			t.Errorf("after the restore the hub shows operation %v, state %v", app["operation"], at(app, "status", "operationState"))
		}
		spoke := r.get(r.spoke, "a")
		if spoke["operation"] != nil {
			t.Errorf("the command runs again: %v", spoke["operation"])
		}
		if got := at(spoke, "metadata", "annotations", "argocd.argoproj.io/refresh"); got != "hard" {
			t.Errorf("the request of a refresh is %v on the spoke, want it made again", got)
		}
		if s := r.stats(r.hub); !s.Agreed || len(s.Parked) != 0 {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// What is missing on an autonomous spoke that was restored, on the connection on which
// it had it, was not deleted there: the spoke is asked what it keeps before a mirror goes.
func TestAutonomousSpokeIsRestoredOnItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{now: stream.History{ID: "history", Token: "token", Revision: 1}}
		r := newPair(t, options{mode: stream.Autonomous, configure: h.configure})
		_, ended := r.connect()
		r.create(r.spoke, "before", nil, spec("one"))
		pass(time.Second)
		backup := r.spoke.store.Snapshot()
		r.create(r.spoke, "after", nil, spec("one"))
		r.create(r.spoke, "deleted", nil, spec("one"))
		pass(time.Second)
		r.remove(r.spoke, "deleted")
		pass(time.Second)
		if r.get(r.hub, "after") == nil || r.get(r.hub, "deleted") != nil {
			t.Fatal("before the restore the hub does not show what is on the spoke")
		}
		h.mu.Lock()
		h.forgot = true
		h.mu.Unlock()
		r.spoke.store.Restore(backup, 1000)
		select {
		case err := <-ended:
			if !errors.Is(err, mirror.ErrForgotten) {
				t.Errorf("the connection ended: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the connection goes on")
		}
		if r.get(r.hub, "after") == nil {
			t.Error("the mirror of what the restore took is gone")
		}
	})
}

// A spoke that cannot say what it keeps does not lose a mirror meanwhile, and nothing
// else waits.
func TestAutonomousSpokeCannotSayWhatItKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{now: stream.History{ID: "history", Token: "token", Revision: 1}}
		r := newPair(t, options{mode: stream.Autonomous, configure: h.configure})
		r.create(r.spoke, "goes", nil, spec("one"))
		r.connect()
		pass(time.Second)
		h.mu.Lock()
		h.away = true
		h.mu.Unlock()
		r.remove(r.spoke, "goes")
		r.create(r.spoke, "new", nil, spec("one"))
		pass(5 * time.Minute)
		if r.get(r.hub, "goes") == nil || r.get(r.hub, "new") == nil {
			t.Errorf("the hub shows %v and %v, want both", r.get(r.hub, "goes"), r.get(r.hub, "new"))
		}
	})
}
