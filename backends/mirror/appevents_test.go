package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// shown is what a hub was asked to show. It is read while all sleep.
type shown struct {
	events  []appevents.Event
	times   []time.Time
	uids    []string
	failure error
	metrics *prometheus.Registry
	budget  *budget.Peer
	common  *appevents.Common
}

// configure has the hub show events.
func (s *shown) configure(t *testing.T) func(stream.Side, *mirror.Config) {
	return func(side stream.Side, cfg *mirror.Config) {
		if side == stream.Spoke {
			return
		}
		s.metrics = prometheus.NewRegistry()
		metrics, err := linkmetrics.New(s.metrics)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Metrics, cfg.EventRate = metrics, s.common
		if s.budget != nil {
			cfg.Budget = s.budget
		}
		cfg.ShowEvent = func(_ context.Context, about backends.Object, e appevents.Event) (int, error) {
			if about.Key != e.Application {
				t.Errorf("an event of %s is said to be about %s", e.Application, about.Key)
			}
			s.events, s.times, s.uids = append(s.events, e), append(s.times, time.Now()), append(s.uids, about.UID)
			return 1000, s.failure
		}
	}
}

// counted is how many events had a result.
func (s *shown) counted(t *testing.T, result string) int {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "argomesh_mirror_application_events_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// sum is how often all that was shown was said.
func (s *shown) sum() int {
	n := 0
	for _, e := range s.events {
		n += e.Count
	}
	return n
}

// reports has the spoke's Argo CD say something of one of its Applications.
func (r *pair) reports(name, reason, message string) {
	r.t.Helper()
	o, there := r.spoke.store.Get(r.spoke.key(name))
	if !there {
		r.t.Fatalf("there is no %s on the spoke", name)
	}
	r.spoke.Report(r.ctx, o.UID, appevents.Event{
		Application: o.Key, EventText: stream.EventText{Type: stream.EventWarning, Reason: reason, Message: message},
		Count: 1, First: time.Now(), Last: time.Now(),
	})
}

func eventful() m { return m{"spec": m{"project": "default", "destination": m{"name": "edge-1"}}} }

func TestEventsAreShown(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shown{}
				r := newPair(t, options{mode: mode, configure: s.configure(t)})
				owner := r.hub
				if mode == stream.Autonomous {
					owner = r.spoke
				}
				r.create(owner, "guestbook", nil, eventful())
				cut, _ := r.connect()
				pass(time.Minute)
				r.reports("guestbook", "OperationCompleted", "Sync operation failed")
				pass(time.Second)
				onHub, _ := r.hub.store.Get(r.hub.key("guestbook"))
				if len(s.events) != 1 || s.uids[0] != onHub.UID {
					t.Fatalf("shown are %+v, of %v", s.events, s.uids)
				}
				if e := s.events[0]; e.Reason != "OperationCompleted" || e.Message != "Sync operation failed" || e.Type != stream.EventWarning || e.Count != 1 {
					t.Errorf("shown is %+v", e)
				}
				// What was said while the hub was away is shown with its age.
				cut()
				synctest.Wait()
				said := time.Now()
				r.reports("guestbook", "OperationCompleted", "Sync operation failed")
				pass(10 * time.Second)
				r.reports("guestbook", "OperationCompleted", "Sync operation failed")
				pass(10 * time.Second)
				r.connect()
				pass(time.Minute)
				if len(s.events) != 2 {
					t.Fatalf("shown are %+v", s.events)
				}
				if e := s.events[1]; e.Count != 2 || e.First.Sub(said).Abs() > time.Second || e.Last.Sub(e.First) != 10*time.Second {
					t.Errorf("shown is %+v, first said at %s", e, said)
				}
			})
		})
	}
}

// Each is counted, whatever the rates let through.
func TestEventsByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{common: appevents.NewCommon()}
		r := newPair(t, options{configure: s.configure(t)})
		const applications, minutes, perSecond = 4, 5, 8
		for i := range applications {
			r.create(r.hub, fmt.Sprint("a", i), nil, eventful())
		}
		r.connect()
		pass(time.Minute)
		said := 0
		for range minutes * 60 {
			for i := range perSecond {
				r.reports(fmt.Sprint("a", i%applications), "ResourceUpdated", fmt.Sprint(said))
				said++
			}
			pass(time.Second)
		}
		pass(5 * time.Minute)
		if got := s.sum(); got != said {
			t.Errorf("%d are shown, want %d", got, said)
		}
		of := map[string][]time.Time{}
		for i, e := range s.events {
			of[e.Application.Name] = append(of[e.Application.Name], s.times[i])
		}
		for name, times := range of {
			if most := kit.MostWithin(times, time.Minute); most > 10 {
				t.Errorf("%d of %s within a minute", most, name)
			}
		}
		if most := kit.MostWithin(s.times, time.Second); most > 5 {
			t.Errorf("%d within a second", most)
		}
		if len(s.times) < applications*10*minutes {
			t.Errorf("only %d are shown", len(s.times))
		}
	})
}

// Many agents together have what the hub lets all have, and each of them a part of it.
func TestEventsOfAllAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 20
		common := appevents.NewCommon()
		all := make([]*shown, agents)
		rigs, attackers := make([]*pair, agents), make([]*attacker, agents)
		for i := range all {
			all[i] = &shown{common: common}
			r := newPair(t, options{mode: stream.Autonomous, configure: all[i].configure(t)})
			for n := range 40 {
				r.create(r.spoke, fmt.Sprint("a", n), nil, eventful())
			}
			cut, _ := r.connect()
			pass(time.Minute)
			cut()
			rigs[i] = r
		}
		for i, r := range rigs {
			attackers[i] = r.attack(r.hub)
		}
		began := time.Now()
		for range 10 {
			for _, a := range attackers {
				var m stream.ApplicationEvents
				for n := range stream.MaxApplicationEvents {
					m.Events = append(m.Events, stream.ApplicationEvent{
						Name: fmt.Sprint("a", n), EventText: stream.EventText{Type: stream.EventNormal, Reason: "Made", Message: time.Now().String()}, Count: 1,
					})
				}
				a.say(m)
			}
			pass(time.Second)
		}
		var times []time.Time
		for i, s := range all {
			times = append(times, s.times...)
			if n := len(s.times); n < 5 || n > 50 { // 25 on average: who asks first is chance
				t.Errorf("of agent %d %d are shown in 10 s", i, n)
			}
		}
		for second := range 10 {
			n := 0
			for _, at := range times {
				if since := at.Sub(began); since >= time.Duration(second)*time.Second && since < time.Duration(second+1)*time.Second {
					n++
				}
			}
			if n > 50 {
				t.Errorf("%d in second %d", n, second)
			}
		}
	})
}

// What is over budget drops events, and nothing else.
func TestEventsAreDroppedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{budget: budget.NewPeer("edge-1", budget.Limits{
			Writes: budget.Limit{Rate: 1, Burst: 10}, Bytes: budget.Limit{Rate: 1 << 20, Burst: 1 << 20},
		}, nil, time.Now())}
		r := newPair(t, options{mode: stream.Autonomous, configure: s.configure(t)})
		r.create(r.spoke, "guestbook", nil, eventful())
		r.connect()
		pass(time.Minute)
		before := s.budget.Levels(time.Now())
		r.reports("guestbook", "OperationCompleted", "counts")
		synctest.Wait()
		if after := s.budget.Levels(time.Now()); len(s.events) != 1 || before.Writes-after.Writes != 1 || before.Bytes-after.Bytes != 1000 {
			t.Errorf("%d are shown, and of %+v %+v is left", len(s.events), before, after)
		}
		for i := range 30 {
			r.create(r.spoke, fmt.Sprint("more-", i), nil, eventful())
		}
		pass(time.Second)
		r.reports("guestbook", "OperationCompleted", "over budget")
		pass(2 * time.Minute)
		if len(s.events) != 1 || s.counted(t, "over_budget") != 1 {
			t.Errorf("shown are %+v, %d were dropped", s.events, s.counted(t, "over_budget"))
		}
		for i := range 30 {
			if _, there := r.hub.store.Get(r.hub.key(fmt.Sprint("more-", i))); !there {
				t.Errorf("more-%d is not on the hub", i)
			}
		}
		r.reports("guestbook", "OperationCompleted", "again within the budget")
		pass(time.Second)
		if len(s.events) != 2 {
			t.Errorf("shown are %+v", s.events)
		}
	})
}

// An agent speaks of its own Applications alone, of those that it has.
func TestEventsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{}
		r := newPair(t, options{configure: s.configure(t)})
		r.create(r.hub, "guestbook", nil, eventful())
		r.create(r.hub, "never-sent", m{"labels": m{"argocd-agent.argoproj-labs.io/ignore-sync": "true"}}, eventful())
		for namespace, name := range map[string]string{"argocd": "the-hubs", "edge-2": "another-agents"} {
			key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
			if _, err := r.hub.store.Create(r.ctx, key, text(t, m{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": m{"namespace": namespace, "name": name},
			})); err != nil {
				t.Fatal(err)
			}
		}
		cut, _ := r.connect()
		pass(time.Minute)
		cut()
		synctest.Wait()
		a := r.attack(r.hub)
		said := stream.EventText{Type: stream.EventNormal, Reason: "OperationCompleted"}
		var m stream.ApplicationEvents
		for _, e := range []stream.ApplicationEvent{
			{Name: "the-hubs"}, {Namespace: "argocd", Name: "the-hubs"}, {Namespace: "edge-2", Name: "another-agents"}, {Name: "another-agents"},
			{Name: "never-sent"}, {Name: "nothing"}, {Namespace: "edge-1", Name: "guestbook"}, {Name: "guestbook"},
		} {
			e.EventText, e.Count = said, 1
			m.Events = append(m.Events, e)
		}
		a.say(m)
		pass(time.Minute)
		if len(s.events) != 1 || s.events[0].Application != r.hub.key("guestbook") {
			t.Errorf("shown are %+v", s.events)
		}
		if n := s.counted(t, "unknown"); n != 7 {
			t.Errorf("%d are counted as unknown, want 7", n)
		}
	})
}

// The spoke speaks of what both sides have, and to a hub that shows it.
func TestEventsThatStayOnTheSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{}
		var sent int
		o := options{configure: s.configure(t), watch: func(msg stream.Message) {
			if _, is := msg.(stream.ApplicationEvents); is {
				sent++
			}
		}}
		r := newPair(t, o)
		r.create(r.hub, "guestbook", nil, eventful())
		r.create(r.spoke, "local", nil, eventful())
		r.connect()
		pass(time.Minute)
		r.reports("local", "OperationCompleted", "")
		r.spoke.Report(r.ctx, "the UID of an earlier one", appevents.Event{Application: r.spoke.key("guestbook"), Count: 1})
		pass(time.Minute)
		if sent != 0 || len(s.events) != 0 {
			t.Errorf("%d messages were sent, shown are %+v", sent, s.events)
		}
		r.options.mute = true // an older hub
		r.connect()
		r.reports("guestbook", "OperationCompleted", "")
		pass(time.Minute)
		if sent != 0 {
			t.Errorf("%d messages were sent to a hub that does not know them", sent)
		}
		r.options.mute = false
		r.connect()
		pass(time.Minute)
		r.reports("guestbook", "OperationCompleted", strings.Repeat("x\x1b\n", 1000))
		pass(time.Second)
		if sent != 1 || len(s.events) != 1 || len(s.events[0].Message) != 1024 || strings.ContainsAny(s.events[0].Message, "\x1b\n") {
			t.Errorf("%d messages were sent, shown are %+v", sent, s.events)
		}
	})
}

// A hub that cannot show them goes on, and says so once.
func TestEventsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{failure: errors.New("events is forbidden")}
		r := newPair(t, options{configure: s.configure(t)})
		r.create(r.hub, "guestbook", nil, eventful())
		r.connect()
		pass(time.Minute)
		for i := range 3 {
			r.reports("guestbook", "OperationCompleted", fmt.Sprint(i))
			pass(time.Second)
		}
		if n := s.counted(t, "failed"); n != 3 || len(s.events) != 3 {
			t.Errorf("%d failed of %d", n, len(s.events))
		}
	})
}

// However much a spoke sends, no more waits than there is room for, and nothing of it is
// shown once its authority has ended.
func TestFloodOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{}
		r := newPair(t, options{mode: stream.Autonomous, configure: s.configure(t)})
		for i := range 100 {
			r.create(r.spoke, fmt.Sprint("a", i), nil, eventful())
		}
		cut, _ := r.connect()
		pass(time.Minute)
		cut()
		synctest.Wait()
		a := r.attack(r.hub)
		for n := range 100 {
			var m stream.ApplicationEvents
			for i := range stream.MaxApplicationEvents {
				m.Events = append(m.Events, stream.ApplicationEvent{
					Name: fmt.Sprint("a", (n*32+i)%100), EventText: stream.EventText{Type: stream.EventNormal, Reason: fmt.Sprint("R", n)}, Count: 1,
				})
			}
			a.say(m)
		}
		synctest.Wait()
		sizes, err := r.hub.Sizes(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if sizes["tidings"] > 64 || s.counted(t, "crowded") < 3000 {
			t.Errorf("%d wait, %d were dropped", sizes["tidings"], s.counted(t, "crowded"))
		}
		if len(s.events) > 5 {
			t.Errorf("%d are shown at once", len(s.events))
		}
		a.end(stream.ErrRevoked)
		if err := <-a.served; !errors.Is(err, stream.ErrRevoked) {
			t.Errorf("Serve() = %v", err)
		}
		was := len(s.events)
		pass(time.Minute)
		if len(s.events) != was {
			t.Errorf("%d were shown after the revocation", len(s.events)-was)
		}
	})
}

// counts has both sides of a pair count events, each by itself.
func counts(t *testing.T, o *options) (hub, spoke *shown) {
	t.Helper()
	hub, spoke = &shown{}, &shown{}
	onHub := hub.configure(t)
	o.configure = func(side stream.Side, cfg *mirror.Config) {
		onHub(side, cfg)
		if side == stream.Hub {
			return
		}
		spoke.metrics = prometheus.NewRegistry()
		metrics, err := linkmetrics.New(spoke.metrics)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Metrics = metrics
	}
	return hub, spoke
}

// What waits on the hub goes with the connection by which it came, whether that is cut or
// replaced, and is counted.
func TestEventsGoWithTheirConnection(t *testing.T) {
	for name, next := range map[string]func(r *pair, cut context.CancelFunc){
		"cut":      func(_ *pair, cut context.CancelFunc) { cut() },
		"replaced": func(r *pair, _ context.CancelFunc) { r.connect() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o options
				s, _ := counts(t, &o)
				s.common = appevents.NewCommon()
				r := newPair(t, o)
				r.create(r.hub, "guestbook", nil, eventful())
				cut, _ := r.connect()
				pass(time.Minute)
				for range 500 { // by other agents, so that what follows waits for ten seconds
					s.common.Reserve(time.Now())
				}
				for i := range 3 {
					r.reports("guestbook", fmt.Sprint("Reason", i), "")
				}
				pass(time.Second)
				if len(s.events) != 0 || s.counted(t, "cut_off") != 0 {
					t.Fatalf("shown are %+v, and %d are counted as cut off", s.events, s.counted(t, "cut_off"))
				}
				next(r, cut)
				pass(time.Minute)
				if n := s.counted(t, "cut_off"); n != 3 || len(s.events) != 0 {
					t.Errorf("%d are counted as cut off, want 3; shown are %+v", n, s.events)
				}
			})
		})
	}
}

// A spoke counts what it was about to tell when the connection is replaced, and nothing of it
// as sent; what had not come that far the next hears.
func TestEventsThatWereAboutToBeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, free := make(chan struct{}), make(chan struct{})
		stop := sync.OnceFunc(func() { close(stuck) })
		o := options{watch: func(msg stream.Message) {
			if _, is := msg.(stream.ApplicationEvents); is {
				stop()
				<-free // the network takes no more
			}
		}}
		_, s := counts(t, &o)
		r := newPair(t, o)
		r.create(r.hub, "guestbook", nil, eventful())
		r.connect()
		pass(time.Minute)
		r.reports("guestbook", "First", "under way")
		<-stuck
		for i := range 6 {
			r.reports("guestbook", fmt.Sprint("Next", i), "")
		}
		pass(time.Second)
		if sent := s.counted(t, "sent"); sent != 1 {
			t.Errorf("%d are counted as sent, want 1", sent)
		}
		r.options.watch = nil
		r.connect()
		close(free)
		pass(time.Minute)
		sent, cut := s.counted(t, "sent"), s.counted(t, "cut_off")
		if cut == 0 || sent+cut != 7 {
			t.Errorf("%d are counted as sent, %d as cut off, want 7 in all", sent, cut)
		}
	})
}

// What waits on a spoke for a hub that turns out not to show events is counted.
func TestEventsForAnOlderHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{mute: true}
		_, s := counts(t, &o)
		r := newPair(t, o)
		r.create(r.hub, "guestbook", nil, eventful())
		cut, _ := r.connect()
		pass(time.Minute)
		cut()
		synctest.Wait()
		r.reports("guestbook", "OperationCompleted", "")
		r.connect()
		pass(time.Minute)
		if n := s.counted(t, "cut_off"); n != 1 || s.counted(t, "sent") != 0 {
			t.Errorf("%d are counted as cut off, %d as sent", n, s.counted(t, "sent"))
		}
	})
}
