//go:build linux

package bounds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// What SECURITY.md promises of a hostile peer.
const (
	principalResident = 1 << 30
	agentResident     = 512 << 20
	slowerAtMost      = 2 // times: the 99th percentile of what others change
)

// longestRest is how much longer an attack lasts at most, on a slow machine, until each of
// its kinds was made.
const longestRest = harness.Patience

// siege is how long people are left alone, and how long there is an attack, from when each
// attacker has begun.
type siege struct {
	calm, attack time.Duration
	// judge says whether it is asserted how much longer changes take: too few are made in
	// a minute, on a busy machine, for a 99th percentile that says something.
	judge bool
}

var shortSiege = siege{calm: 20 * time.Second, attack: time.Minute}

// TestHostileAgentAtFullSpeed has a stolen spoke of each mode do everything that the wire
// allows, as fast as it can, beside twenty honest agents. No other test runs at that time:
// among many, an attack gets too little of the processors to be one.
func TestHostileAgentAtFullSpeed(t *testing.T) {
	hostileAgents(t, shortSiege)
}

func hostileAgents(t *testing.T, s siege) {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "redis-cli")
	ctx := t.Context()
	h := harnesstest.Alone(t)
	w, err := env.StartBareControlPlanes(ctx, h, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	redis, err := h.StartRedis(ctx, "hub-redis")
	if err != nil {
		t.Fatal(err)
	}
	d, settings := openDoors(h, redis)
	if err := w.StartPrincipal(ctx, "", settings); err != nil {
		t.Fatal(err)
	}
	old := oldToken(t, w, goodName(0))
	c := newOthers(t, w, 20)
	stranger, err := w.Identify(ctx, env.SPIFFEID("nobody"))
	if err != nil {
		t.Fatal(err)
	}
	var attackers []*hostile
	shown := map[string]string{} // an Application of each
	for _, mode := range []string{"managed", "autonomous"} {
		r := w.Register(t, "bad-"+mode, mode)
		spec := map[string]any{"access": map[string]any{"enabled": true}}
		shown[r.Name] = "small-0"
		if mode == "managed" {
			spec["childApplications"], shown[r.Name] = "mirror", "ordered-0"
			for i := range 4 {
				env.Create(t, r.Hub, r.Application(fmt.Sprint("ordered-", i)))
			}
		}
		env.Patch(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), r.Name, map[string]any{"spec": spec})
		api, err := w.Identify(ctx, env.SPIFFEID(r.Name))
		if err != nil {
			t.Fatal(err)
		}
		attackers = append(attackers, &hostile{name: r.Name, h: w.Harness, args: []string{
			"agent", "--socket", api.Socket, "--stranger", stranger.Socket, "--name", r.Name, "--mode", mode,
			"--principal", w.Principal.Address, "--by-token", w.ByTokenTLS,
		}})
	}

	next := newNext(t, w, "bad-autonomous")
	start := inUse(t, w.Hub)
	calm := c.changes(t, s.calm)
	quiet := inUse(t, w.Hub) - start // what people and honest agents write

	since, before := time.Now(), inUse(t, w.Hub)
	etcd := watchGrowth(t, w.Hub)
	startAll(t, attackers...)
	begin := time.Now()
	worked := processors(t, w.Principal.Process, w.Hub.Server, w.Hub.Etcd.Process)
	closed := watchesClosed(t, w.Hub)
	looking := look(t, w, d, c.agents[0].Name, old, shown)
	attacking := processors(t, attackers[0].process, attackers[1].process)
	attacked := c.changes(t, s.attack)
	t.Logf("the hub's API server closed %v watches that were not read fast enough", watchesClosed(t, w.Hub)-closed)
	worked(time.Since(begin))
	attacking(time.Since(begin))
	untilAllMade(t, attackers...)
	looking.stop(t)
	for _, a := range attackers {
		a.stop(t)
	}
	took := time.Since(since)
	bound(t, etcd.most(t)-before, len(attackers), took, float64(quiet)/s.calm.Seconds())
	resident(t, w.Principal.Process, principalResident)
	c.spared(t)
	next.kept(t)
	s.compare(t, calm, attacked)
}

// bound fails the test when an etcd grew by more than that many peers may write, beside so
// many bytes a second of others.
func bound(t *testing.T, grown int64, peers int, took time.Duration, others float64) {
	t.Helper()
	const mib = 1 << 20 // the defaults: 64 MiB, and one a second
	admitted := int64(peers) * (64*mib + int64(took.Seconds())*mib)
	most := admitted*6/5 + int64(others*took.Seconds())
	t.Logf("etcd grew by %d MiB in %s, %d MiB are admitted", grown/mib, took.Round(time.Second), most/mib)
	if grown > most {
		t.Errorf("etcd grew by %d bytes, want %d at most", grown, most)
	}
}

// compare says how much longer changes took in the attack.
func (s siege) compare(t *testing.T, calm, attacked []time.Duration) {
	t.Helper()
	for name, took := range map[string][]time.Duration{"without the attack": calm, "in the attack": attacked} {
		t.Logf("%d changes %s: half within %s, 99 %% within %s, all within %s", len(took), name,
			percentile(took, 50).Round(time.Millisecond), percentile(took, 99).Round(time.Millisecond), percentile(took, 100).Round(time.Millisecond))
	}
	if most := slowerAtMost * percentile(calm, 99); s.judge && percentile(attacked, 99) > most {
		t.Errorf("in the attack 99 %% of the changes take %s, want %s at most", percentile(attacked, 99), most)
	}
}

// watchesClosed is how many watches an API server has ended because they were not read
// fast enough.
func watchesClosed(t *testing.T, c *harness.ControlPlane) float64 {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := 0.0
	for line := range strings.Lines(string(text)) {
		rest, found := strings.CutPrefix(line, "apiserver_terminated_watchers_total{")
		if !found {
			continue
		}
		_, value, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("watches closed: %s", strings.TrimSpace(line))
		all += n
	}
	return all
}

// processors notes how much processor time processes have used. What it returns says how
// much of a processor each has had since.
func processors(t *testing.T, all ...*harness.Process) (since func(time.Duration)) {
	t.Helper()
	before := make([]time.Duration, len(all))
	for i, p := range all {
		var err error
		if before[i], err = p.Worked(); err != nil {
			t.Fatal(err)
		}
	}
	return func(took time.Duration) {
		t.Helper()
		for i, p := range all {
			now, err := p.Worked()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s used %.2f processors", p.Name(), (now-before[i]).Seconds()/took.Seconds())
		}
	}
}

// resident fails the test when a process has ended, or had more memory at any time.
func resident(t *testing.T, p *harness.Process, most int64) {
	t.Helper()
	select {
	case <-p.Exited():
		t.Errorf("%s has ended: %v", p.Name(), p.ExitError())
		return
	default:
	}
	peak, err := p.PeakResident()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s had %d MiB at most", p.Name(), peak>>20)
	if peak > most {
		t.Errorf("%s had %d bytes, want %d at most", p.Name(), peak, most)
	}
}

// hostile is a running program of test/hostile.
type hostile struct {
	name    string
	h       *harness.Harness
	args    []string
	process *harness.Process
}

// start starts it with what others leave of the processors: in truth it has its own. At the end of
// nice it would still keep one for some milliseconds while others wait.
func (a *hostile) start(t *testing.T) {
	t.Helper()
	program, err := a.h.Binary("hostile")
	if err != nil {
		t.Fatal(err)
	}
	a.process, err = a.h.Start(t.Context(), harness.Command{Name: "hostile-" + a.name, Path: program, Args: a.args, Idle: true})
	if err != nil {
		t.Fatal(err)
	}
}

// othersProjects is the attack of test/hostile of which nothing may be taken.
const othersProjects = "projects of another agent"

// What test/hostile says of how far it is.
const (
	firstBegan = "the first attack has begun"
	allMade    = "every attack was made"
)

// told is a check that it has said a line.
func (a *hostile) told(line string) error {
	log, err := os.ReadFile(a.process.LogFile())
	if err != nil {
		return err
	}
	if !strings.Contains(string(log), line+"\n") {
		return fmt.Errorf("%s has not said: %s", a.name, line)
	}
	return nil
}

// startAll starts attackers and waits until each has begun: on a busy machine that takes
// as long as an attack.
func startAll(t *testing.T, all ...*hostile) {
	t.Helper()
	for _, a := range all {
		a.start(t)
	}
	for _, a := range all {
		env.Eventually(t, a.name+" attacks", func() error { return a.told(firstBegan) })
	}
}

// untilAllMade goes on until something was sent in each attack, longestRest at most: stop
// says in which nothing was.
func untilAllMade(t *testing.T, all ...*hostile) {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), longestRest)
	defer cancel()
	for _, a := range all {
		if err := harness.Eventually(ctx, "every attack", func() error { return a.told(allMade) }); err != nil {
			t.Log(err)
		}
	}
	t.Logf("until every attack was made it took %s more", time.Since(begin).Round(time.Millisecond))
}

// deed is what came of one attack, as test/hostile tells.
type deed struct {
	Begun, Sent, Bytes, Answered int64
	Ends, Results                map[string]int64
	Why                          map[string]string
}

// stop ends it and fails the test when it did not do all that it should.
func (a *hostile) stop(t *testing.T) {
	t.Helper()
	if err := a.process.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(a.process.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	var deeds map[string]deed
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &deeds); err != nil {
		t.Fatalf("%s ended with %q: %v", a.name, lines[len(lines)-1], err)
	}
	if len(deeds) == 0 {
		t.Errorf("%s did nothing", a.name)
	}
	for _, name := range slices.Sorted(maps.Keys(deeds)) {
		d := deeds[name]
		t.Logf("%s: %s: begun %d times, %d messages of %d KiB in all, %d answers; results %v %v; ended by %v", a.name, name, d.Begun, d.Sent, d.Bytes>>10, d.Answered, d.Results, d.Why, d.Ends)
		if d.Sent == 0 {
			t.Errorf("%s: nothing came of the attack %q", a.name, name)
		}
		if name == othersProjects && (d.Results["taken"] > 0 || d.Results["not-owned"] == 0) {
			t.Errorf("%s: projects of another agent are answered by %v", a.name, d.Results)
		}
	}
}

// growth follows how many bytes of its database an etcd uses.
type growth struct {
	cancel context.CancelFunc
	done   chan struct{}
	peak   int64
	err    error
}

func watchGrowth(t *testing.T, c *harness.ControlPlane) *growth {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g := &growth{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			bytes, err := bytesInUse(context.WithoutCancel(ctx), c)
			if err != nil {
				g.err = err
				return
			}
			g.peak = max(g.peak, bytes)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-g.done
	})
	return g
}

// most is how many it used at most.
func (g *growth) most(t *testing.T) int64 {
	t.Helper()
	g.cancel()
	<-g.done
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.peak
}
