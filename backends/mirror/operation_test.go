package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// begin stands in for Argo CD's controller on the spoke that takes an operation up.
// The time of a synctest bubble begins with the year 2000.
func (r *pair) begin(name string) {
	r.t.Helper()
	r.update(r.spoke, name, func(app m) {
		app["status"] = m{"operationState": m{"operation": app["operation"], "phase": "Running", "startedAt": "1999-12-31T23:59:59Z"}}
	})
}

// end stands in for the controller that ends an operation as it was asked to.
func (r *pair) end(name string) {
	r.t.Helper()
	r.update(r.spoke, name, func(app m) {
		state := at(app, "status", "operationState").(m)
		state["phase"], state["finishedAt"] = "Failed", "2026-01-01T00:00:05Z"
		delete(app, "operation")
	})
}

// terminate does what argocd-server does.
func (r *pair) terminate(e end, name string) {
	r.t.Helper()
	r.update(e, name, func(app m) {
		if app["operation"] == nil || at(app, "status", "operationState") == nil {
			r.t.Fatalf("argocd-server would find nothing to terminate: %v", app)
		}
		at(app, "status", "operationState").(m)["phase"] = "Terminating"
	})
}

func (r *pair) phase(e end, name string) any {
	r.t.Helper()
	return at(r.get(e, name), "status", "operationState", "phase")
}

func TestTerminate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.connect()
		r.create(r.hub, "a", nil, m{"spec": spec("one")["spec"], "operation": m{"sync": m{}}})
		pass(time.Second)
		// Before the controller took it up there is nothing to terminate; it is tried again.
		r.terminate(r.hub, "a")
		pass(time.Second)
		if got := at(r.get(r.spoke, "a"), "status", "operationState"); got != nil {
			t.Errorf("operationState %v on the spoke before the operation began", got)
		}
		r.begin("a")
		pass(time.Minute)
		if spoke, hub := r.phase(r.spoke, "a"), r.phase(r.hub, "a"); spoke != "Terminating" || hub != "Terminating" {
			t.Errorf("phase %v on the spoke, %v on the hub", spoke, hub)
		}
		// The controller writes over it once, as it may.
		r.begin("a")
		pass(time.Second)
		if spoke, hub := r.phase(r.spoke, "a"), r.phase(r.hub, "a"); spoke != "Terminating" || hub != "Terminating" {
			t.Errorf("phase %v on the spoke, %v on the hub after it was undone", spoke, hub)
		}
		r.end("a")
		pass(time.Second)
		if app := r.get(r.hub, "a"); app["operation"] != nil || r.phase(r.hub, "a") != "Failed" {
			t.Errorf("the hub shows operation %v, state %v", app["operation"], at(app, "status", "operationState"))
		}
		if s := r.stats(r.hub); !s.Agreed || len(s.Parked) != 0 {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// TestTerminateBeforeTheSpokeTookIt cuts the link before a command that was sent
// arrives: it is in doubt, so only the spoke can tell that it will never run.
func TestTerminateBeforeTheSpokeTookIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		// What the spoke runs by itself keeps the command from being taken.
		r.update(r.spoke, "a", func(app m) { app["operation"] = m{"initiatedBy": m{"automated": true}} })
		r.begin("a")
		r.update(r.hub, "a", func(app m) { delete(app, "operation"); app["operation"] = m{"sync": m{}}; delete(app, "status") })
		pass(time.Second)
		if got := at(r.get(r.hub, "a"), "status", "operationState", "message"); got != "sent to agent edge-1" {
			t.Fatalf("the command is shown as %v", got)
		}
		cut()
		pass(time.Second)
		r.terminate(r.hub, "a")
		pass(time.Minute)
		if got := r.phase(r.hub, "a"); got != "Terminating" {
			t.Errorf("phase %v on the hub while the spoke is away", got)
		}
		r.connect()
		pass(time.Second)
		state := at(r.get(r.hub, "a"), "status", "operationState")
		if got := at(state.(m), "message"); got != "not run by agent edge-1: terminated before it was started" {
			t.Errorf("the hub shows %v", state)
		}
		if got := r.phase(r.spoke, "a"); got != "Running" {
			t.Errorf("the spoke's own operation is %v", got)
		}
		r.complete("a")
		pass(time.Minute)
		if op := at(r.get(r.spoke, "a"), "operation"); op != nil {
			t.Errorf("it was started after all: %v", op)
		}
	})
}

func TestOperationBornOnTheSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) { app["operation"] = m{"initiatedBy": m{"automated": true}} })
		r.begin("a")
		pass(time.Second)
		born := m{"initiatedBy": m{"automated": true}, "info": []any{m{"name": "argomesh.io/spoke", "value": "edge-1"}}}
		shown := func(what string, want any) {
			t.Helper()
			if diff := cmp.Diff(want, at(r.get(r.hub, "a"), "operation")); diff != "" {
				t.Errorf("%s: operation on the hub (-want +got)\n%s", what, diff)
			}
		}
		shown("it runs", born)
		// Someone on the hub removes it: it is there still.
		r.update(r.hub, "a", func(app m) { delete(app, "operation") })
		pass(time.Second)
		shown("somebody removed it", born)

		cut()
		pass(29 * time.Second)
		shown("the spoke is away for a moment", born)
		pass(2 * time.Second)
		shown("the spoke is away", nil)
		if got := r.phase(r.hub, "a"); got != "Running" {
			t.Errorf("the state of an operation on a spoke that is away: %v", got)
		}
		r.connect()
		pass(time.Second)
		shown("the spoke is back", born)

		r.terminate(r.hub, "a")
		pass(time.Second)
		if got := r.phase(r.spoke, "a"); got != "Terminating" {
			t.Errorf("after its termination on the hub it is %v on the spoke", got)
		}
		r.end("a")
		pass(time.Second)
		shown("it ended", nil)
		if got := r.phase(r.hub, "a"); got != "Failed" {
			t.Errorf("at its end it is %v on the hub", got)
		}
		if s := r.stats(r.hub); !s.Agreed || len(s.Parked) != 0 {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// TestSyncWhileTheSpokeIsBusyAndAway presses sync where the spoke's own operation
// is shown: once that has left the hub, the command waits for it on the spoke.
func TestSyncWhileTheSpokeIsBusyAndAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) { app["operation"] = m{"initiatedBy": m{"automated": true}} })
		r.begin("a")
		pass(time.Second)
		cut()
		pass(31 * time.Second)
		r.update(r.hub, "a", func(app m) {
			if app["operation"] != nil {
				t.Fatal("argocd-server would refuse the sync")
			}
			app["operation"] = m{"sync": m{"revision": "pressed"}}
			delete(app["status"].(m), "operationState")
		})
		pass(time.Second)
		r.connect()
		pass(time.Second)
		if got := at(r.get(r.hub, "a"), "operation", "sync", "revision"); got != "pressed" {
			t.Errorf("the command gave way to what runs: %v", r.get(r.hub, "a"))
		}
		if got := at(r.get(r.spoke, "a"), "operation", "initiatedBy", "automated"); got != true {
			t.Errorf("what runs gave way to the command: %v", r.get(r.spoke, "a"))
		}
		r.complete("a")
		pass(time.Minute)
		if got := at(r.get(r.spoke, "a"), "operation", "sync", "revision"); got != "pressed" {
			t.Errorf("the command does not run: %v", r.get(r.spoke, "a"))
		}
		r.complete("a")
		pass(time.Second)
		if app := r.get(r.hub, "a"); app["operation"] != nil || r.phase(r.hub, "a") != "Succeeded" {
			t.Errorf("the hub shows operation %v, state %v", app["operation"], at(app, "status", "operationState"))
		}
	})
}

// TestRefreshAndHydrate asks for both at once, as argocd-server does, and makes the
// refresh harder before it is consumed.
func TestRefreshAndHydrate(t *testing.T) {
	const refresh, hydrate = "argocd.argoproj.io/refresh", "argocd.argoproj.io/hydrate"
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.connect()
		app := spec("one")
		app["spec"].(m)["sourceHydrator"] = m{"drySource": m{"path": "dry"}}
		r.create(r.hub, "a", nil, app)
		pass(time.Second)
		ask := func(annotations m) {
			r.update(r.hub, "a", func(app m) { app["metadata"].(m)["annotations"] = annotations })
			pass(time.Second)
		}
		check := func(what string, want [4]any) {
			t.Helper()
			got := [4]any{}
			for i, e := range []end{r.hub, r.spoke} {
				annotations, _ := at(r.get(e, "a"), "metadata", "annotations").(m)
				got[2*i], got[2*i+1] = annotations[refresh], annotations[hydrate]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: refresh and hydrate on the hub, on the spoke (-want +got)\n%s", what, diff)
			}
		}
		consume := func(key string) {
			r.update(r.spoke, "a", func(app m) { delete(at(app, "metadata", "annotations").(m), key) })
			pass(time.Second)
		}
		ask(m{refresh: "normal", hydrate: "normal"})
		check("asked", [4]any{"normal", "normal", "normal", "normal"})
		ask(m{refresh: "hard", hydrate: "normal"})
		check("asked for more", [4]any{"hard", "normal", "hard", "normal"})
		consume(refresh)
		check("refreshed", [4]any{nil, "normal", nil, "normal"})
		ask(m{refresh: "hard", hydrate: "normal"})
		check("asked again", [4]any{"hard", "normal", "hard", "normal"})
		consume(hydrate)
		check("hydrated", [4]any{"hard", nil, "hard", nil})
		consume(refresh)
		check("refreshed again", [4]any{})
	})
}
