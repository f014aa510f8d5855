package mirror_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// bounding gives the peer of one side bounds.
func bounding(on stream.Side, b bounds.Bounds) func(stream.Side, *mirror.Config) {
	return func(side stream.Side, cfg *mirror.Config) {
		if side == on {
			cfg.Bounds = b
		}
	}
}

// shown counts the Applications app-0 to app-n that an end has.
func (r *pair) shown(e end, n int) int {
	r.t.Helper()
	count := 0
	for i := range n {
		if r.get(e, fmt.Sprint("app-", i)) != nil {
			count++
		}
	}
	return count
}

// overLimits counts what is parked for being over a limit.
func (r *pair) overLimits(e end) int {
	r.t.Helper()
	count := 0
	for _, refusal := range r.stats(e).Parked {
		if refusal.Kind == stream.RefusalOverLimit {
			count++
		}
	}
	return count
}

// TestNumberOfObjectsIsBound: of more than there may be the rest is parked, on either
// side, those that are there are updated, and a limit that is raised is in force at once.
func TestNumberOfObjectsIsBound(t *testing.T) {
	for name, c := range map[string]struct {
		mode stream.Mode
		sink stream.Side
	}{
		"on the hub":   {mode: stream.Autonomous, sink: stream.Hub},
		"on the spoke": {mode: stream.Managed, sink: stream.Spoke},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most, apps = 5, 40
				r := newPair(t, options{mode: c.mode, configure: bounding(c.sink, bounds.Bounds{Applications: most})})
				source, sink := r.spoke, r.hub
				if c.sink == stream.Spoke {
					source, sink = r.hub, r.spoke
				}
				for i := range apps {
					r.create(source, fmt.Sprint("app-", i), nil, spec("one"))
				}
				r.connect()
				pass(time.Minute)
				if got, parked := r.shown(sink, apps), r.overLimits(sink); got != most || parked != apps-most {
					t.Errorf("%d are there and %d parked, want %d and %d", got, parked, most, apps-most)
				}
				for i := range apps {
					r.update(source, fmt.Sprint("app-", i), func(o m) { o["spec"] = spec("two")["spec"] })
				}
				pass(time.Minute)
				for i := range apps {
					if o := r.get(sink, fmt.Sprint("app-", i)); o != nil && at(o, "spec", "source", "path") != "two" {
						t.Errorf("app-%d stays as it was: %v", i, o["spec"])
					}
				}
				sink.Bound(bounds.Bounds{Applications: apps})
				pass(time.Minute)
				if got := r.shown(sink, apps); got != apps {
					t.Errorf("%d are there once the limit is raised, want %d", got, apps)
				}
				sink.Bound(bounds.Bounds{Applications: 1})
				for i := range apps {
					r.update(source, fmt.Sprint("app-", i), func(o m) { o["spec"] = spec("three")["spec"] })
				}
				pass(time.Minute)
				if s := r.stats(sink); !s.Agreed || r.overLimits(sink) != 0 || r.shown(sink, apps) != apps {
					t.Errorf("what was there before the limit is not updated: agreed %v, parked %v", s.Agreed, s.Parked)
				}
			})
		})
	}
}

// TestSizeOfObjectsIsBound: one that is too large, and one with which all would be, is
// parked; the others pass.
func TestSizeOfObjectsIsBound(t *testing.T) {
	large := func(n int) m { return spec(strings.Repeat("a", n)) }
	for name, c := range map[string]struct {
		bounds bounds.Bounds
		apps   []m
		shown  int
	}{
		"at the limit of one": {bounds: bounds.Bounds{ApplicationBytes: 10_000}, apps: []m{large(8_000), large(8_000)}, shown: 2},
		"beyond it":           {bounds: bounds.Bounds{ApplicationBytes: 10_000}, apps: []m{large(10_000), large(10)}, shown: 1},
		"at the limit of all": {bounds: bounds.Bounds{TotalBytes: 10_000}, apps: []m{large(3_000), large(3_000)}, shown: 2},
		"beyond that":         {bounds: bounds.Bounds{TotalBytes: 10_000}, apps: []m{large(4_000), large(4_000), large(4_000)}, shown: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{mode: stream.Autonomous, configure: bounding(stream.Hub, c.bounds)})
				for i, app := range c.apps {
					r.create(r.spoke, fmt.Sprint("app-", i), nil, app)
				}
				r.connect()
				pass(time.Minute)
				if got, parked := r.shown(r.hub, len(c.apps)), r.overLimits(r.hub); got != c.shown || parked != len(c.apps)-c.shown {
					t.Errorf("%d are shown and %d parked, want %d and %d", got, parked, c.shown, len(c.apps)-c.shown)
				}
			})
		})
	}
}

// TestSecretsCountForAll: repositories take of what a hub may keep on a spoke, as Applications do.
func TestSecretsCountForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secrets, most = 5, 2
		r := newPair(t, options{hub: allKinds, spoke: allKinds, configure: bounding(stream.Spoke, bounds.Bounds{TotalBytes: 11_000})})
		r.project("a", true)
		for i := range secrets {
			encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
			r.put(r.hub, stream.Secret, fmt.Sprint("repository-", i), m{"labels": m{"argocd.argoproj.io/secret-type": "repository"}}, m{"data": m{
				"url": encode(fmt.Sprint("https://git.example/", i)), "project": encode("a"), "password": encode(strings.Repeat("p", 3_000)),
			}})
		}
		r.connect()
		pass(time.Minute)
		if got, parked := len(r.secrets()), r.overLimits(r.spoke); got != most || parked != secrets-most {
			t.Errorf("%d are there and %d parked, want %d and %d", got, parked, most, secrets-most)
		}
	})
}

// TestAnObjectGrowsNoFurtherThanItMay: what is shown stays as it is when it would become
// too large; one that was larger before the limit is updated.
func TestAnObjectGrowsNoFurtherThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{mode: stream.Autonomous, configure: bounding(stream.Hub, bounds.Bounds{ApplicationBytes: 10_000})})
		r.create(r.spoke, "app-0", nil, spec("one"))
		r.connect()
		pass(time.Minute)
		long := strings.Repeat("a", 20_000)
		r.update(r.spoke, "app-0", func(o m) { o["spec"] = spec(long)["spec"] })
		pass(time.Minute)
		if got := at(r.get(r.hub, "app-0"), "spec", "source", "path"); got != "one" || r.overLimits(r.hub) != 1 {
			t.Errorf("it is shown with a path of %d, %d parked", len(fmt.Sprint(got)), r.overLimits(r.hub))
		}
		r.hub.Bound(bounds.Bounds{ApplicationBytes: 30_000})
		pass(time.Minute)
		r.hub.Bound(bounds.Bounds{ApplicationBytes: 10_000})
		r.update(r.spoke, "app-0", func(o m) { o["spec"] = spec(long + "b")["spec"] })
		pass(time.Minute)
		if got := at(r.get(r.hub, "app-0"), "spec", "source", "path"); got != long+"b" {
			t.Errorf("what was larger before is shown with a path of %d", len(fmt.Sprint(got)))
		}
	})
}

// TestStatusThatIsTooLargeIsShownWithoutResources: and says so, until it fits again.
func TestStatusThatIsTooLargeIsShownWithoutResources(t *testing.T) {
	resources := func(n int) []any {
		var out []any
		for i := range n {
			out = append(out, m{"kind": "ConfigMap", "name": fmt.Sprint("c-", i), "status": "Synced"})
		}
		return out
	}
	for name, mode := range map[string]stream.Mode{"managed": stream.Managed, "autonomous": stream.Autonomous} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{mode: mode, configure: bounding(stream.Hub, bounds.Bounds{ApplicationBytes: 10_000})})
				source := r.spoke
				if mode == stream.Managed {
					source = r.hub
				}
				r.create(source, "app-0", nil, spec("one"))
				r.connect()
				pass(time.Minute)
				show := func(n int) m {
					r.update(r.spoke, "app-0", func(o m) { o["status"] = m{"sync": m{"status": "Synced"}, "resources": resources(n)} })
					pass(time.Minute)
					return r.get(r.hub, "app-0")
				}
				app := show(1000)
				if at(app, "status", "sync", "status") != "Synced" || at(app, "status", "resources") != nil || messageOf(app, "ArgomeshStatusWarning") == "" {
					t.Errorf("a status that is too large is shown as %.300v", app["status"])
				}
				if s := r.stats(r.hub); !s.Agreed {
					t.Errorf("the sides do not agree on it: parked %v", s.Parked)
				}
				app = show(3)
				if got, _ := at(app, "status", "resources").([]any); len(got) != 3 || messageOf(app, "ArgomeshStatusWarning") != "" {
					t.Errorf("one that fits again is shown as %.300v", app["status"])
				}
			})
		})
	}
}
