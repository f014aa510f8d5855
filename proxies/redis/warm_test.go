package redis_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/spoke"
	"github.com/argomesh/argomesh/test/kit"
)

// unopened is what a redis.Warm is told of a hubEnv: the agents that are connected, and
// their Applications.
type unopened struct {
	w       *hubEnv
	warm    *redis.Warm
	metrics *prometheus.Registry

	mu       sync.Mutex // guards what follows
	sessions map[identity.AgentName]string
	apps     map[appkey.Instance]uint64 // with their content
	notified []appkey.Instance          // of which the managed resources were kept
}

// warms runs one with the agents that are named, each with an Application "shop".
func (w *hubEnv) warms(agents ...string) *unopened {
	w.t.Helper()
	u := &unopened{w: w, metrics: prometheus.NewRegistry(), sessions: map[identity.AgentName]string{}, apps: map[appkey.Instance]uint64{}}
	for _, name := range agents {
		u.sessions[kit.Agent(w.t, name)] = "1"
		u.apps[appkey.Instance{Namespace: name, Name: "shop"}] = 1
	}
	var err error
	u.warm, err = redis.NewWarm(redis.WarmConfig{
		Hub: w.hub, Sessions: u.connected, Applications: u.of, Lookup: u.lookup, Stored: u.stored, Metrics: u.metrics, Log: zerolog.New(zerolog.NewTestWriter(w.t)),
	})
	must(w.t, err)
	kit.Background(w.t, u.warm.Run)
	return u
}

func (u *unopened) connected() map[identity.AgentName]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.sessions)
}

func (u *unopened) of(name identity.AgentName) map[appkey.Instance]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	apps := maps.Clone(u.apps)
	maps.DeleteFunc(apps, func(i appkey.Instance, _ uint64) bool { return i.Namespace != name.String() })
	return apps
}

func (u *unopened) lookup(i appkey.Instance) (agent identity.AgentName, content uint64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	name, err := identity.ParseAgentName(i.Namespace)
	content, known := u.apps[i]
	return name, content, err == nil && known
}

func (u *unopened) stored(_ context.Context, name identity.AgentName, i appkey.Instance) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i.Namespace == name.String() {
		u.notified = append(u.notified, i)
	}
}

// changes has the resources of an Application changed.
func (u *unopened) changes(i appkey.Instance) {
	u.mu.Lock()
	u.apps[i]++
	u.mu.Unlock()
	u.warm.Changed(i)
}

// connects has an agent connected once more.
func (u *unopened) connects(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sessions[kit.Agent(u.w.t, name)] += "+"
}

// counts waits until so many reads have that result, or more.
func (u *unopened) counts(result string, want int) {
	u.w.t.Helper()
	kit.EventuallyNil(u.w.t, fmt.Sprint(want, " reads that are ", result), func() error {
		if got := u.count(result); got < want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// count is how many reads have a result.
func (u *unopened) count(result string) int {
	u.w.t.Helper()
	families, err := u.metrics.Gather()
	must(u.w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" && l.GetValue() == result {
					return int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return 0
}

// managed is the key of an Application's managed resources.
func managed(agent, name string) string {
	return strings.Replace(tree(agent, name), "resources-tree", "managed-resources", 1)
}

// shard is the key of a further part of an Application's tree.
func shard(agent, name string, n int) string {
	return strings.TrimSuffix(tree(agent, name), version+".gz") + fmt.Sprint(n, "|", version, ".gz")
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	must(t, errors.Join(err, w.Close()))
	return b.String()
}

// An Application that no one has opened is shown while its spoke is away, with its mark, all parts
// of its tree and its managed resources.
func TestUnopenedApplicationIsShown(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.Format = version + ".gz" }), t.Context()
	e := w.add("a", nil)
	spoke := e.redis.client(t, 3)
	values := map[string]string{
		"tree": `{"nodes":[{"kind":"Deployment","name":"shop"}],"shardsCount":2}`, "shard": `{"nodes":[{"kind":"Service","name":"shop"}]}`,
		"managed": `[{"group":"apps","kind":"Deployment","namespace":"web","name":"shop","liveState":"{}"}]`,
	}
	must(t, errors.Join(
		spoke.Set(ctx, tree("", "shop"), packed(t, values["tree"]), 0).Err(), spoke.Set(ctx, shard("", "shop", 1), packed(t, values["shard"]), 0).Err(),
		spoke.Set(ctx, managed("", "shop"), packed(t, values["managed"]), 0).Err(),
	))
	u := w.warms("a")
	u.counts("kept", 3)
	u.mu.Lock()
	if told := u.notified; !slices.Equal(told, []appkey.Instance{{Namespace: "a", Name: "shop"}}) {
		t.Errorf("told of %v", told)
	}
	u.mu.Unlock()
	w.set(e, true, func(e *edge) { e.away = true })
	client := w.client(3)
	for key, want := range map[string]string{tree("a", "shop"): `"Last known"`, shard("a", "shop", 1): `"Last known"`, managed("a", "shop"): `"liveState"`} {
		value, err := client.Get(ctx, key).Bytes()
		must(t, err)
		r, err := gzip.NewReader(bytes.NewReader(value))
		must(t, err)
		var text bytes.Buffer
		if _, err := text.ReadFrom(r); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%s is %s, %v", key, text.String(), err)
		}
	}
	if live, _, ok := w.hub.LastLive(ctx, kit.Agent(t, "a"), "uid-a", appkey.Instance{Namespace: "a", Name: "shop"}, redis.Object{Group: "apps", Kind: "Deployment", Namespace: "web", Name: "shop"}); !ok {
		t.Errorf("its object is %s, %t", live, ok)
	}
	if n, err := testutil.GatherAndCount(w.metrics, "argomesh_redis_proxy_read_seconds"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// Before it is known in which format the hub's Argo CD asks, nothing is read; then it is, and
// each change is read, and each connection.
func TestUnopenedApplicationsAreReadAgain(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	spoke := w.add("a", nil).redis.client(t, 3)
	shop := appkey.Instance{Namespace: "a", Name: "shop"}
	u := w.warms("a")
	_ = w.client(3).Get(ctx, tree("a", "unknown")).Err() // there is none, and the format is told
	u.counts("missing", 1)
	must(t, errors.Join(spoke.Set(ctx, tree("", "shop"), packed(t, `{"nodes":[]}`), 0).Err(), spoke.Set(ctx, managed("", "shop"), packed(t, `[]`), 0).Err()))
	u.changes(shop)
	u.counts("kept", 2)
	u.connects("a")
	u.counts("kept", 4)
	kept := w.store.all()
	must(t, spoke.Del(ctx, tree("", "shop")).Err())
	u.changes(shop)
	u.counts("missing", 2)
	if got := w.store.all(); len(got) != len(kept) || len(kept) != 2 {
		t.Errorf("kept are %d values, and were %d", len(got), len(kept))
	}
	must(t, spoke.Set(ctx, tree("", "shop"), strings.Repeat("x", 2<<20), 0).Err())
	u.changes(shop)
	u.counts("long", 1)
	u.counts("kept", 5)
	must(t, spoke.Set(ctx, tree("", "shop"), packed(t, strings.Repeat("[", 100)+strings.Repeat("]", 100)), 0).Err())
	u.changes(shop)
	u.counts("excess", 1)
	w.move(shop, redis.Target{})
	u.changes(shop)
	u.counts("moved", 1)
}

// An agent that refuses is asked once for each connection, and the Agent says of no other
// format than the hub's Argo CD asks for.
func TestUnopenedApplicationsOfWhoRefuses(t *testing.T) {
	w := newHubEnv(t, func(c *redis.HubConfig) { c.Format = version + ".gz" })
	w.add("a", func(c *spoke.Config) { c.Allow = func(appkey.Instance) bool { return false } })
	w.add("b", func(c *spoke.Config) { c.Version = "9.9.9" })
	u := w.warms("a", "b")
	u.counts("refused", 1)
	u.counts("format", 1)
	for i := range 3 {
		u.changes(appkey.Instance{Namespace: "a", Name: "shop"})
		u.connects("b")
		u.counts("format", 2+i) // after which the change was seen
	}
	if n := u.count("refused"); n != 1 {
		t.Errorf("one that refuses was asked %d times", n)
	}
	if told := w.drainFound(); len(told) != 0 {
		t.Errorf("the Agents are told %v before anybody has asked", told)
	}
	_ = w.client(3).Get(t.Context(), tree("a", "shop")).Err() // it says that it is refused
	u.connects("b")
	u.counts("format", 5)
	if told := w.drainFound(); len(told) != 1 || !strings.HasPrefix(told[0], "b: ") {
		t.Errorf("the Agents are told %v", told)
	}
	u.connects("a")
	u.counts("refused", 2)
}

// While an agent's Redis does not answer it is asked again, and callers come first all the
// time.
func TestUnopenedApplicationsWait(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.Format, c.MaxAgentCalls, c.AnswerTimeout = version+".gz", 2, time.Second }), t.Context()
	e := w.add("a", nil)
	spoke := e.redis.client(t, 3)
	must(t, errors.Join(spoke.Set(ctx, tree("", "shop"), packed(t, `{"nodes":[]}`), 0).Err(), spoke.Set(ctx, managed("", "shop"), packed(t, `[]`), 0).Err()))
	w.set(e, false, func(e *edge) { e.away = true })
	u := w.warms("a")
	u.counts("failed", 1)
	w.set(e, false, func(e *edge) { e.away = false })
	u.counts("kept", 2)
	if n, err := testutil.GatherAndCount(w.metrics, "argomesh_redis_proxy_reads_total"); err != nil || n != 0 {
		t.Errorf("%d callers are counted, %v", n, err)
	}
}
