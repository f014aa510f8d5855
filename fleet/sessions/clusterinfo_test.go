package sessions

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

func TestClusterSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		registry := &fleet.Registry{}
		c := Clusters{Sessions: New("here"), Registry: registry}
		wants := func(when string, want map[identity.AgentName]clusterinfo.Session) {
			t.Helper()
			if diff := cmp.Diff(want, c.Snapshot(), cmp.AllowUnexported(identity.AgentName{})); diff != "" {
				t.Errorf("%s: Snapshot() (-want +got)\n%s", when, diff)
			}
		}
		changes := func(when string, f func()) {
			t.Helper()
			changed := c.Changed()
			f()
			select {
			case <-changed:
			default:
				t.Errorf("%s: nobody is told", when)
			}
		}
		none := map[identity.AgentName]clusterinfo.Session{}
		only := func(s clusterinfo.Session) map[identity.AgentName]clusterinfo.Session {
			return map[identity.AgentName]clusterinfo.Session{name: s}
		}
		session := server.Session{Agent: stream.Agent{Name: name}, Hello: stream.Hello{Kubernetes: "v1.36.3"}}

		wants("nothing is registered", none)
		registry.Set([]v1alpha1.Agent{{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}})
		wants("registered", only(clusterinfo.Session{Unseen: true}))

		began := time.Now()
		var closed func()
		changes("opened", func() { closed = c.Sessions.Open(session) })
		wants("connected", only(clusterinfo.Session{Connected: true, Since: began, Kubernetes: "v1.36.3"}))
		changes("counted", func() {
			c.Sessions.Count(name, ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Agent: name}}}.Local, mirror.Stats{Applications: 7}, controller.ChildrenElsewhere{}, nil)
		})
		wants("counted by the link", only(clusterinfo.Session{
			Connected: true, Since: began, Kubernetes: "v1.36.3", Spoke: stream.SpokeInfo{Applications: 7},
		}))
		spoke := stream.SpokeInfo{Applications: 0, APIs: 90, Resources: 4000, CacheSynced: began}
		changes("heard", func() { c.Sessions.SetSpokeInfo(name, spoke) })
		quiet := c.Changed()
		c.Sessions.SetSpokeInfo(name, spoke)
		select {
		case <-quiet:
			t.Error("what is known is told as a change")
		default:
		}
		wants("told by the agent", only(clusterinfo.Session{Connected: true, Since: began, Kubernetes: "v1.36.3", Spoke: spoke}))

		// A connection that takes over, whose predecessor ends late.
		<-time.After(time.Minute)
		next := c.Sessions.Open(session)
		closed()
		wants("taken over", only(clusterinfo.Session{Connected: true, Since: began, Kubernetes: "v1.36.3", Spoke: spoke}))
		<-time.After(time.Minute)
		ended := time.Now()
		changes("closed", next)
		wants("away", only(clusterinfo.Session{Since: ended, LastSeen: ended, Kubernetes: "v1.36.3", Spoke: spoke}))

		holds := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Status: v1alpha1.AgentStatus{
			DeletionsHeld: &v1alpha1.DeletionsHeld{Total: 201, Reason: v1alpha1.HoldTooMany}, Counts: v1alpha1.AgentCounts{Parked: 3},
		}}
		registry.UpdateStatus(holds)
		wants("what its status has stays while it is away", only(clusterinfo.Session{
			Since: ended, LastSeen: ended, Kubernetes: "v1.36.3", Spoke: spoke, Held: 201, HeldReason: "TooMany", Parked: 3,
		}))

		holds.Status = v1alpha1.AgentStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: "RefusedMode", Message: "refused: another mode"},
		}}
		holds.Spec.Suspended = true
		registry.UpdateStatus(holds)
		wants("refused and suspended", only(clusterinfo.Session{
			Since: ended, LastSeen: ended, Kubernetes: "v1.36.3", Spoke: spoke, Suspended: true, Refused: "refused: another mode",
		}))

		registry.Set(nil)
		wants("not registered any more", none)
	})
}

func TestByOurClock(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const year = 365 * 24 * time.Hour
	for name, tt := range map[string]struct{ synced, told, want time.Time }{
		"equal clocks":                {now.Add(-time.Hour), now, now.Add(-time.Hour)},
		"a slow message":              {now.Add(-time.Hour), now.Add(-2 * time.Second), now.Add(-time.Hour)},
		"ten years ahead":             {now.Add(10*year - time.Hour), now.Add(10 * year), now.Add(-time.Hour)},
		"ten years behind":            {now.Add(-10*year - time.Hour), now.Add(-10 * year), now.Add(-time.Hour)},
		"as far ahead as it goes":     {time.Unix(1<<62, 0), time.Unix(1<<62+60, 0), now.Add(-time.Minute)},
		"a sync that is yet to come":  {now.Add(2 * year), now.Add(year), now},
		"an agent that tells no time": {now.Add(-time.Hour), time.Time{}, now.Add(-time.Hour)},
		"no cache":                    {time.Time{}, now.Add(year), time.Time{}},
	} {
		got := byOurClock(stream.SpokeInfo{APIs: 3, CacheSynced: tt.synced, SentAt: tt.told}, now)
		if !got.CacheSynced.Equal(tt.want) || !got.SentAt.IsZero() || got.APIs != 3 {
			t.Errorf("%s: byOurClock() = %v, want the cache synced at %s", name, got, tt.want)
		}
	}
}

// A spoke whose clock is off says the same on each of its connections, in messages
// that take a little more or less time.
func TestHearIsNotShakenByTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		s := New("here")
		s.Open(server.Session{Agent: stream.Agent{Name: name}})
		spoke := func() time.Time { return time.Now().Add(-24 * time.Hour) } // its clock
		told := stream.SpokeInfo{APIs: 3, CacheSynced: spoke(), SentAt: spoke()}
		s.SetSpokeInfo(name, told)
		<-time.After(time.Hour)
		told.SentAt = spoke()
		<-time.After(time.Second)
		changed := s.Changed()
		s.SetSpokeInfo(name, told)
		select {
		case <-changed:
			t.Error("what is known is told as a change")
		default:
		}
	})
}

func TestLastKnown(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	seen := metav1.NewTime(at.Add(time.Minute))
	for name, tt := range map[string]struct {
		status v1alpha1.AgentStatus
		want   clusterinfo.Session
	}{
		"never connected": {v1alpha1.AgentStatus{Since: &at}, clusterinfo.Session{Unseen: true}},
		"was away": {
			v1alpha1.AgentStatus{Since: &seen, ObservedAt: &at, Versions: v1alpha1.AgentVersions{Kubernetes: "v1"}, Counts: v1alpha1.AgentCounts{Applications: 2}},
			clusterinfo.Session{Unseen: true, Since: seen.Time, LastSeen: at.Time, Kubernetes: "v1", Spoke: stream.SpokeInfo{Applications: 2}},
		},
		"was connected, nobody knows until when": {
			v1alpha1.AgentStatus{Connected: true, Since: &at, ObservedAt: &seen},
			clusterinfo.Session{Unseen: true, LastSeen: seen.Time},
		},
	} {
		if diff := cmp.Diff(tt.want, lastKnown(tt.status)); diff != "" {
			t.Errorf("%s: lastKnown() (-want +got)\n%s", name, diff)
		}
	}
}
