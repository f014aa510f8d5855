package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// TestFightIsTold: a second writer, such as an image updater, changes what is applied
// back within a second, for 20 minutes. That costs one write a minute, both sides do not
// agree meanwhile, and the hub says where it is, and what is changed back. When the
// second writer stops that ends.
func TestFightIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		mode    stream.Mode
		fought  func(*pair) end // the side of the second writer
		told    string
		agreeOn func(*pair) end // whose Stats must not say that both sides agree
	}{
		"on a managed spoke": {
			stream.Managed, func(r *pair) end { return r.spoke }, "another writer on the spoke changes it back: spec.source.path", func(r *pair) end { return r.hub },
		},
		"on the hub of an autonomous agent": {
			stream.Autonomous, func(r *pair) end { return r.hub }, "another writer on the hub changes it back: spec.source.path", func(r *pair) end { return r.hub },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registries := map[stream.Side]*prometheus.Registry{}
				r := newPair(t, options{mode: test.mode, configure: func(side stream.Side, cfg *mirror.Config) {
					registries[side] = prometheus.NewRegistry()
					metrics, err := linkmetrics.New(registries[side])
					if err != nil {
						t.Fatal(err)
					}
					cfg.Metrics = metrics
				}})
				owner, fought := r.hub, test.fought(r)
				if test.mode == stream.Autonomous {
					owner = r.spoke
				}
				r.create(owner, "app", nil, spec("ours"))
				r.create(owner, "other", nil, spec("ours"))
				cut, _ := r.connect()
				pass(time.Second)
				writes := 0
				theirs := func() {
					t.Helper()
					if at(r.get(fought, "app"), "spec", "source", "path") != "theirs" {
						writes++
						r.update(fought, "app", func(app m) { at(app, "spec", "source").(m)["path"] = "theirs" })
					}
				}
				entry := stream.EntryKey{Collection: stream.Applications, Name: "app"}
				agreed := 0
				for second := range 20 * 60 {
					theirs()
					pass(time.Second)
					if second == 600 {
						cut() // a new connection is no reason to start over
						r.connect()
					}
					s := r.stats(test.agreeOn(r))
					if second < 10 {
						continue
					}
					if s.Agreed {
						agreed++
					}
					if got := s.Parked[entry]; got != (stream.Refusal{Kind: stream.RefusalContested, Message: test.told}) || len(s.Parked) != 1 {
						t.Fatalf("after %d s the hub names %v, want the Application that is fought for", second, s.Parked)
					}
				}
				if most := 4 + 20 + 1; writes > most {
					t.Errorf("%d writes in 20 minutes, want %d at most", writes, most)
				}
				if agreed > 0 {
					t.Errorf("both sides are said to agree for %d s", agreed)
				}
				if got := conditionOf(r.get(r.hub, "app")); !strings.HasSuffix(got, test.told) {
					t.Errorf("the hub's Application has condition %q, want %q", got, test.told)
				}
				if got := conditionOf(r.get(r.hub, "other")); got != "" {
					t.Errorf("the other Application has condition %q", got)
				}
				if got := undone(t, registries[stream.Hub]); got < 10 {
					t.Errorf("the hub's metric counts %v", got)
				}

				pass(8 * time.Minute)
				if got := at(r.get(fought, "app"), "spec", "source", "path"); got != "ours" {
					t.Errorf("after the fight the path is %v", got)
				}
				if s := r.stats(test.agreeOn(r)); !s.Agreed || len(s.Parked) > 0 {
					t.Errorf("after the fight Stats() = %+v", s)
				}
				if got := conditionOf(r.get(r.hub, "app")); got != "" {
					t.Errorf("after the fight there is condition %q", got)
				}
				// Once is no fight, and is mended at once.
				theirs()
				pass(time.Second)
				if got := at(r.get(fought, "app"), "spec", "source", "path"); got != "ours" {
					t.Errorf("a change later is not mended at once: %v", got)
				}
			})
		})
	}
}

// A copy that someone deletes again and again is not made more often.
func TestFightOfDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.create(r.hub, "app", nil, spec("ours"))
		r.connect()
		pass(time.Second)
		deletions := 0
		for range 10 * 60 {
			if r.get(r.spoke, "app") != nil {
				deletions++
				r.remove(r.spoke, "app")
			}
			pass(time.Second)
		}
		if deletions > 4+10 {
			t.Errorf("it was made %d times in 10 minutes", deletions)
		}
		if got := conditionOf(r.get(r.hub, "app")); got != "agent edge-1: another writer on the spoke deletes it" {
			t.Errorf("the hub's Application has condition %q", got)
		}
		r.remove(r.hub, "app")
		pass(time.Second)
		if s := r.stats(r.hub); !s.Agreed || len(s.Parked) > 0 {
			t.Errorf("when it is gone Stats() = %+v", s)
		}
	})
}

// undone is the value of the metric that counts what was put back.
func undone(t *testing.T, registry *prometheus.Registry) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "argomesh_mirror_undone_total" {
			for _, metric := range f.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}
