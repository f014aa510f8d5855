package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// hubHistory is what the hub's API server would say.
type hubHistory struct {
	mu     sync.Mutex
	broken string
	err    error
	now    stream.History
	asked  int
	behind string           // what Known named first
	kept   []stream.History // by the spoke
	away   bool             // the spoke's API server does not take what is to be kept
	forgot bool             // the spoke was restored
}

func (h *hubHistory) set(broken string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken, h.err = broken, err
}

// announce changes the history on the hub, and shows the change to its link.
func (h *hubHistory) announce(hub end, now stream.History) {
	h.mu.Lock()
	h.now = now
	h.mu.Unlock()
	hub.Announce(now)
}

func (h *hubHistory) configure(side stream.Side, cfg *mirror.Config) {
	if side == stream.Hub {
		cfg.History = func(_ context.Context, _ mirror.Peer, known mirror.Known) (mirror.HistoryCheck, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked++
			if known.Behind != "" && h.behind == "" {
				h.behind, h.broken = known.Behind, "the hub was restored"
			}
			return mirror.HistoryCheck{Broken: h.broken, Now: h.now}, h.err
		}
		return
	}
	cfg.SaveHistory = func(ctx context.Context, hub string, history stream.History) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.away {
			h.mu.Unlock()
			<-ctx.Done()
			h.mu.Lock()
			return ctx.Err()
		}
		if h.forgot {
			return mirror.ErrForgotten
		}
		if hub != "hub-1" {
			return errors.New("the history of another hub")
		}
		h.kept = append(h.kept, history)
		return nil
	}
}

func (r *pair) withheld() []string {
	r.t.Helper()
	var names []string
	for _, key := range r.stats(r.hub).Withheld.Keys {
		names = append(names, key.String())
	}
	return names
}

// A hub that was restored has fewer Applications than the spoke: they stay until
// someone accepts their end, and what is there flows all the same.
func TestRestoredHubRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{}
		r := newPair(t, options{configure: h.configure})
		for _, name := range []string{"lost", "kept", "leaves"} {
			r.create(r.hub, name, m{"finalizers": []any{cascade}}, spec("v1"))
		}
		cut, _ := r.connect()
		pass(time.Second)
		cut()
		synctest.Wait()
		h.set("the hub was restored", nil)
		r.update(r.hub, "lost", func(o m) { o["metadata"].(m)["finalizers"] = nil })
		r.remove(r.hub, "lost")
		r.update(r.hub, "kept", func(o m) { o["spec"] = spec("v2")["spec"] })
		r.remove(r.hub, "leaves") // witnessed, but by which hub?
		r.connect()
		pass(30 * time.Second)
		if diff := cmp.Diff([]string{"application leaves", "application lost"}, r.withheld()); diff != "" {
			t.Fatalf("withheld (-want +got):\n%s", diff)
		}
		for _, name := range []string{"lost", "leaves"} {
			if o := r.get(r.spoke, name); o == nil || o["metadata"].(m)["deletionTimestamp"] != nil {
				t.Errorf("%s on the spoke is %v, want it untouched", name, o)
			}
		}
		if got := at(r.get(r.spoke, "kept"), "spec", "source", "path"); got != "v2" {
			t.Errorf("a change did not come: path %v", got)
		}

		stats := r.stats(r.hub)
		if stats.Begin || stats.Withheld.Broken != "the hub was restored" {
			t.Fatalf("Stats() = %+v", stats)
		}
		r.hub.Accept("0000000000000000")
		pass(15 * time.Second)
		if len(r.withheld()) != 2 {
			t.Error("the acceptance of another set was taken for that of this one")
		}
		r.hub.Accept(stats.Withheld.ID)
		h.set("", nil)
		pass(15 * time.Second)
		if o := r.get(r.spoke, "lost"); o != nil {
			t.Errorf("after the acceptance the spoke holds %v", o)
		}
		if o := r.get(r.spoke, "leaves"); o == nil || o["metadata"].(m)["deletionTimestamp"] == nil {
			t.Errorf("after the acceptance the spoke holds %v, want it to be deleted with its workloads", o)
		}
		if stats = r.stats(r.hub); !stats.Begin || stats.Withheld.Total != 0 {
			t.Errorf("Stats() = %+v, want a new history to begin", stats)
		}
	})
}

// A check that cannot be had holds back what is absent, and nothing else.
func TestNoJudgementNoAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{}
		r := newPair(t, options{configure: h.configure})
		r.create(r.hub, "gone", nil, spec("v1"))
		r.connect()
		pass(time.Second)
		h.set("", errors.New("the API server is away"))
		r.remove(r.hub, "gone")
		r.create(r.hub, "new", nil, spec("v1"))
		pass(30 * time.Second)
		if r.get(r.spoke, "gone") == nil {
			t.Error("an absence went without a check")
		}
		if r.get(r.spoke, "new") == nil {
			t.Error("what is new did not come")
		}
		h.set("", nil)
		pass(15 * time.Second)
		if o := r.get(r.spoke, "gone"); o != nil {
			t.Errorf("after the check the spoke holds %v", o)
		}
	})
}

// The spoke keeps what the hub announces, and says so; what it cannot keep it does
// not confirm.
func TestSpokeKeepsTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{}
		r := newPair(t, options{configure: h.configure})
		first := stream.History{ID: "h1", Token: "t1", Revision: 7}
		h.announce(r.hub, first)
		cut, _ := r.connect()
		pass(time.Second)
		second := stream.History{ID: "h1", Token: "t2", Revision: 9}
		h.announce(r.hub, second)
		pass(time.Second)
		stored := func() string { return r.stats(r.hub).Stored }
		if got := stored(); got != "t2" {
			t.Errorf("the hub knows %q to be kept, want t2", got)
		}
		h.mu.Lock()
		if diff := cmp.Diff([]stream.History{first, second}, h.kept); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
		h.away = true
		h.mu.Unlock()
		h.announce(r.hub, stream.History{ID: "h1", Token: "t3", Revision: 11})
		pass(time.Minute)
		if got := stored(); got != "t2" {
			t.Errorf("the hub knows %q to be kept, want t2", got)
		}
		cut()
		synctest.Wait() // what waited ends with the connection
		h.mu.Lock()
		h.away = false
		h.mu.Unlock()
		r.connect()
		pass(time.Second)
		if got := stored(); got != "t3" {
			t.Errorf("after a reconnect the hub knows %q to be kept, want t3", got)
		}
	})
}

// A command that waited when the history broke was pressed on another state of
// the Application: it ends visibly, and a later one runs.
func TestWaitingCommandsEndWithTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{}
		r := newPair(t, options{configure: h.configure})
		r.create(r.hub, "app", nil, spec("v1"))
		cut, _ := r.connect()
		pass(time.Second)
		cut()
		synctest.Wait()
		press := func() {
			r.update(r.hub, "app", func(o m) {
				o["operation"] = m{"sync": m{"revision": "HEAD"}}
				delete(o, "status")
			})
		}
		press()
		pass(time.Second)
		h.set("the hub was restored", nil)
		r.connect()
		pass(time.Second)
		hub := r.get(r.hub, "app")
		if hub["operation"] != nil || at(hub, "status", "operationState", "phase") != "Error" {
			t.Errorf("after the break the hub shows %v", hub)
		}
		if o := r.get(r.spoke, "app"); o["operation"] != nil {
			t.Errorf("the command reached the spoke: %v", o)
		}
		h.set("", nil)
		press()
		pass(15 * time.Second)
		if o := r.get(r.spoke, "app"); o["operation"] != nil {
			t.Errorf("a command was sent before the next history had a name: %v", o)
		}
		h.announce(r.hub, stream.History{ID: "h2"})
		pass(time.Second)
		if o := r.get(r.spoke, "app"); o["operation"] == nil {
			t.Errorf("a later command did not reach the spoke: %v", o)
		}
	})
}

// A hub that was restored, and whose revisions were raised so that nothing else shows
// it, has an Application as it was before what the spoke has of it. That is no cache
// that is behind: the history is checked with it, and the hub's word counts again.
func TestAnApplicationIsBehindItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{now: stream.History{ID: "h1", Token: "t1", Revision: 7}}
		r := newPair(t, options{configure: h.configure})
		h.announce(r.hub, h.now)
		r.create(r.hub, "app", nil, spec("v1"))
		cut, _ := r.connect()
		pass(time.Second)
		r.update(r.hub, "app", func(o m) { o["spec"] = spec("v2")["spec"] })
		pass(time.Second)
		cut()
		synctest.Wait()
		r.update(r.spoke, "app", func(o m) { // as it would be by a hub at a later revision
			annotations, _ := at(o, "metadata", "annotations").(m)
			record := annotations["argomesh.io/source"].(string)
			later := regexp.MustCompile(`"revision":\d+`).ReplaceAllString(record, `"revision":5000`)
			if later == record {
				t.Fatalf("the record is %s", record)
			}
			annotations["argomesh.io/source"] = later
		})
		r.update(r.hub, "app", func(o m) { o["spec"] = spec("v1")["spec"] })
		r.connect()
		pass(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if want := "Application edge-1/app"; h.behind != want {
			t.Errorf("behind is said to be %q, want %q", h.behind, want)
		}
		if o := r.get(r.spoke, "app"); at(o, "spec", "source", "path") != "v1" {
			t.Errorf("the spoke has %v", o)
		}
	})
}

// What was accepted once is not accepted for ever: the same objects, back by a restore
// and gone by the next one, wait again.
func TestAcceptanceIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{}
		r := newPair(t, options{configure: h.configure})
		const apps = 30
		without := r.hub.store.Snapshot()
		for i := range apps {
			r.create(r.hub, fmt.Sprint("app-", i), nil, spec("one"))
		}
		r.connect()
		pass(time.Second)
		with := r.hub.store.Snapshot()
		there := func() (n int) {
			for i := range apps {
				if r.get(r.spoke, fmt.Sprint("app-", i)) != nil {
					n++
				}
			}
			return n
		}
		var id string
		for round, accept := range []func(){
			func() { r.hub.Accept(id) },
			func() { r.hub.Accept(id) }, // as each change of the Agent has it called
			func() { r.hub.Accept(""); r.hub.Accept(id) },
		} {
			r.hub.store.Restore(with, uint64(1000*(round+1)))
			pass(20 * time.Minute) // what was lost before is forgotten
			if got := there(); got != apps {
				t.Fatalf("round %d: the spoke has %d of %d", round, got, apps)
			}
			h.set("", errors.New("away")) // or the first few go before the rest is noticed
			r.hub.store.Restore(without, uint64(10000*(round+1)))
			pass(time.Second)
			h.set("", nil)
			pass(time.Minute)
			held := r.stats(r.hub).Withheld
			if there() != apps || held.Total != apps || id != "" && held.ID != id {
				t.Fatalf("round %d: %d are left, held is %+v", round, there(), held)
			}
			id = held.ID
			accept()
			pass(time.Minute)
			switch spent := r.stats(r.hub).AcceptUsed; {
			case round == 1 && there() != apps:
				t.Fatalf("an acceptance was used twice")
			case round == 1:
				continue
			case there() > 0 || spent != id:
				t.Fatalf("round %d: accepted, and %d are left; spent is %q", round, there(), spent)
			}
		}
	})
}
