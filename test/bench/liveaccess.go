//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// What T7 asks of a GET through Envoy, principal and tunnel, beyond a direct one.
const (
	moreMedian = 2.0  // milliseconds at the median
	moreMost   = 10.0 // at the 99th percentile
)

// Rounds of calls that are compared, and how long each is. One round of each way
// follows on one of the other.
const (
	liveRounds = 2
	liveRound  = 2 * time.Second
	// paced is how many calls a second all callers together make when they do not call
	// as fast as they can: few enough that nothing waits for a core.
	paced = 100
)

// runT7 measures live access beside direct access to the same API servers.
func runT7(ctx context.Context, b *bench, s *report.Scenario) error {
	s.Setup = realSetup + " Live access goes through a real Envoy and the principal, with the transport and the tokens of Argo CD; direct access is client-go's with the same " +
		"transport. Both are measured by turns. At a steady rate all callers together make 100 calls a second; at full speed each calls as soon as it is answered, so that what is " +
		"measured there is the machine, and the agent lets the hub begin any number of calls a second. Simulated agents are the real tunnel and the real end of live access at a spoke, in one process with the callers, before a small API " +
		"server over TLS that answers 2 KiB at once."
	if err := realSpoke(ctx, b, s); err != nil {
		return fmt.Errorf("one real spoke: %w", err)
	}
	if err := simulatedSpokes(ctx, b, s); err != nil {
		return fmt.Errorf("simulated spokes: %w", err)
	}
	return nil
}

// crowdSizes are the numbers of callers at a time.
func crowdSizes() []int { return []int{1, 16, 100} }

// gets compares calls of both ways, first at a steady rate and then at full speed.
func gets(ctx context.Context, s *report.Scenario, what string, count int, subjects []subject, direct, proxied func(ctx context.Context, caller, n int) error) error {
	name := fmt.Sprintf("%s, callers: %d", what, count)
	// Anyone who calls first opens connections.
	warm := callers{count: count, call: proxied}
	if _, err := warm.run(ctx, liveRound/4); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	steady := func(call func(ctx context.Context, caller, n int) error) callers {
		return callers{count: count, pause: time.Duration(count) * time.Second / paced, call: call}
	}
	c, err := compare(ctx, liveRounds, liveRound, steady(direct), steady(proxied))
	if err != nil {
		return fmt.Errorf("%s: steady: %w", name, err)
	}
	s.Target(name+": steady, GET beyond direct, p50", c.more(0.5), "ms", report.AtMost(moreMedian), c.remark(0.5))
	s.Target(name+": steady, GET beyond direct, p99", c.more(0.99), "ms", report.AtMost(moreMost), c.remark(0.99))

	full := compared{}
	if full.direct, err = (callers{count: count, call: direct}).run(ctx, liveRound); err != nil {
		return fmt.Errorf("%s: direct: %w", name, err)
	}
	if err := measurePhase(ctx, s, name, subjects, func() (err error) {
		full.proxied, err = (callers{count: count, call: proxied}).run(ctx, liveRound)
		return err
	}); err != nil {
		return err
	}
	s.Note(name+": full speed, GETs", full.proxied.perSecond(), "/s", "direct "+report.Quantity(full.direct.perSecond(), "/s"))
	s.Note(name+": full speed, p50", report.Milliseconds(report.Quantile(full.proxied.took, 0.5)), "ms", "direct "+report.Quantity(report.Milliseconds(report.Quantile(full.direct.took, 0.5)), "ms"))
	s.Note(name+": full speed, p99", report.Milliseconds(report.Quantile(full.proxied.took, 0.99)), "ms", "direct "+report.Quantity(report.Milliseconds(report.Quantile(full.direct.took, 0.99)), "ms"))
	for _, u := range s.Processes[len(s.Processes)-len(subjects):] {
		if u.Process == "principal" || u.Process == "envoy" || u.Process == "agent" {
			s.Note(name+": CPU of "+u.Process+" for one GET", 1e6*u.CPUSeconds/float64(len(full.proxied.took)), "µs")
		}
	}
	return nil
}

// realSpoke measures with an agent and an API server of its own.
func realSpoke(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	w, err := startBenchEnvWith(ctx, b, true, startFrontDoor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	through, err := w.h.ClusterAccess(ctx, w.hub, edge)
	if err != nil {
		return err
	}
	r := &reader{w: w}
	if r.proxied, err = newCaller(through); err != nil {
		return err
	}
	if r.direct, err = newCaller(w.spoke.REST()); err != nil {
		return err
	}
	if r.client, err = kubernetes.NewForConfig(w.spoke.REST()); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for _, count := range crowdSizes() {
		b.say("a real spoke, callers: %d", count)
		if err := gets(ctx, s, "a real spoke", count, w.processes(), spread([]caller{r.direct}, count, realPath), spread([]caller{r.proxied}, count, realPath)); err != nil {
			return err
		}
	}
	b.say("watches")
	if err := r.watches(ctx, s); err != nil {
		return fmt.Errorf("watches: %w", err)
	}
	b.say("large replies beside changes")
	return r.large(ctx, s)
}

// reader reads from the spoke of a benchEnv both ways.
type reader struct {
	w               *benchEnv
	direct, proxied caller
	client          kubernetes.Interface
}

const (
	liveNamespace = "live"
	realPath      = "/api/v1/namespaces/" + liveNamespace + "/configmaps/small"
	watchPath     = "/api/v1/namespaces/" + liveNamespace + "/configmaps?watch=true"
	// largePath lists largeObjects of largeBytes each: 30 MiB.
	largeNamespace = "large"
	largePath      = "/api/v1/namespaces/" + largeNamespace + "/configmaps"
	largeObjects   = 32
	largeBytes     = 960 << 10
)

// prepare makes what is read, and waits until it can be read through the hub.
func (r *reader) prepare(ctx context.Context) error {
	for _, namespace := range []string{liveNamespace, largeNamespace} {
		if err := r.w.spoke.EnsureNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	if err := r.make(ctx, liveNamespace, "small", smallBytes); err != nil {
		return err
	}
	for i := range largeObjects {
		if err := r.make(ctx, largeNamespace, fmt.Sprint("large-", i), largeBytes); err != nil {
			return err
		}
	}
	return harness.Eventually(ctx, "the spoke answers through the hub", func() error {
		return r.proxied.get(ctx, realPath)
	})
}

func (r *reader) make(ctx context.Context, namespace, name string, size int) error {
	_, err := r.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": strings.Repeat("x", size)},
	}, metav1.CreateOptions{})
	return err
}

// watches measures how soon a watch shows what there is, and what is new.
func (r *reader) watches(ctx context.Context, s *report.Scenario) error {
	const times = 20
	var first, event compared
	for i := range times {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		err := func() error {
			defer cancel()
			direct, took, err := r.direct.watch(ctx, watchPath)
			if err != nil {
				return err
			}
			first.direct.took = append(first.direct.took, took)
			proxied, took, err := r.proxied.watch(ctx, watchPath)
			if err != nil {
				return err
			}
			first.proxied.took = append(first.proxied.took, took)
			// Both watches see the same change.
			name := fmt.Sprint("new-", i)
			var seen, seenProxied time.Time
			var g errgroup.Group
			g.Go(func() (err error) { seen, err = shows(direct, name); return err })
			g.Go(func() (err error) { seenProxied, err = shows(proxied, name); return err })
			begun := time.Now()
			err = r.make(ctx, liveNamespace, name, smallBytes)
			if err := errors.Join(err, g.Wait()); err != nil {
				return err
			}
			event.direct.took = append(event.direct.took, seen.Sub(begun))
			event.proxied.took = append(event.proxied.took, seenProxied.Sub(begun))
			return nil
		}()
		if err != nil {
			return err
		}
	}
	s.Target("first watch event", report.Milliseconds(report.Quantile(first.proxied.took, 1)), "ms", report.AtMost(100),
		fmt.Sprintf("the slowest of %d, median %s; direct %s and %s", times, report.Quantity(report.Milliseconds(report.Median(first.proxied.took)), "ms"),
			report.Quantity(report.Milliseconds(report.Quantile(first.direct.took, 1)), "ms"), report.Quantity(report.Milliseconds(report.Median(first.direct.took)), "ms")))
	s.Note("write at the spoke to watch event, beyond direct, p50", event.more(0.5), "ms", event.remark(0.5))
	return nil
}

// watch opens a watch and returns its lines, and how long its first event took. It
// ends with ctx.
func (c caller) watch(ctx context.Context, path string) (*bufio.Reader, time.Duration, error) {
	begun := time.Now()
	res, err := c.begin(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	context.AfterFunc(ctx, func() { _ = res.Body.Close() }) // no one reads on
	lines := bufio.NewReader(res.Body)
	_, err = lines.ReadString('\n')
	return lines, time.Since(begun), err
}

// shows reads lines up to one with text, and returns when that came.
func shows(lines *bufio.Reader, text string) (time.Time, error) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil || strings.Contains(line, `"`+text+`"`) {
			return time.Now(), err
		}
	}
}

// large measures how late a change of an Application reaches its spoke while 30 MiB
// are read from there.
func (r *reader) large(ctx context.Context, s *report.Scenario) error {
	const times = 10
	l, err := newLoad(ctx, r.w)
	if err != nil {
		return err
	}
	defer l.close()
	app := names(1)
	if _, err := l.createAll(ctx, app); err != nil {
		return err
	}
	var quiet, direct, proxied, reading []time.Duration
	for range times {
		alone, err := l.updateAll(ctx, app)
		if err != nil {
			return err
		}
		quiet = append(quiet, alone)
		for _, way := range []struct {
			of   caller
			late *[]time.Duration
		}{{r.direct, &direct}, {r.proxied, &proxied}} {
			late, took, err := l.beside(ctx, way.of, app)
			if err != nil {
				return err
			}
			*way.late = append(*way.late, late)
			reading = append(reading, took)
		}
	}
	remark := func(of []time.Duration) string {
		return fmt.Sprintf("median %s, slowest %s of %d", report.Quantity(report.Milliseconds(report.Median(of)), "ms"), report.Quantity(report.Milliseconds(report.Quantile(of, 1)), "ms"), times)
	}
	s.Note("change of an Application, hub to spoke, alone", report.Milliseconds(report.Median(quiet)), "ms", remark(quiet))
	s.Note("the same beside 30 MiB that are read directly", report.Milliseconds(report.Median(direct)), "ms", remark(direct), "reading took "+report.Quantity(report.Milliseconds(report.Median(reading)), "ms"))
	s.Note("the same beside 30 MiB through the hub", report.Milliseconds(report.Median(proxied)), "ms", remark(proxied))
	s.Target("delay of a change by 30 MiB through the hub", report.Milliseconds(report.Median(proxied)-report.Median(direct)), "ms", report.AtMost(50), "beyond that of 30 MiB that are read directly, medians")
	return nil
}

// beside changes an Application while a large reply is on its way. It returns how
// late the change was on the spoke, and how long the reply took.
func (l *load) beside(ctx context.Context, of caller, app []string) (late, took time.Duration, err error) {
	begun := time.Now()
	res, err := of.begin(ctx, largePath)
	if err != nil {
		return 0, 0, err
	}
	var g errgroup.Group
	g.Go(func() error {
		defer func() { _ = res.Body.Close() }() // it was read
		n, err := io.Copy(io.Discard, res.Body)
		took = time.Since(begun)
		if err == nil && n < largeObjects*largeBytes {
			err = fmt.Errorf("GET %s: %d bytes", largePath, n)
		}
		return err
	})
	late, err = l.updateAll(ctx, app)
	return late, took, errors.Join(err, g.Wait())
}

// simulatedSpokes measures with 1, 100 and 1,000 agents, and with one that is stuck.
func simulatedSpokes(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	w, err := startBenchEnvWith(ctx, b, false, startFrontDoor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	const all = 1000
	b.say("registering %d agents", all)
	l, err := newLiveSpokes(ctx, w, agentNames(all))
	if err != nil {
		return err
	}
	stop := kit.Start(ctx, l.api.run)
	defer func() { err = errors.Join(err, stop()) }()
	processes := []subject{{"principal", w.principal.PID}, {"envoy", w.envoy.PID}, self("agents, API and callers")}
	open := 0
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	for _, agents := range []int{1, 100, all} {
		b.say("opening the tunnels of %d agents", agents)
		from := open
		stops = append(stops, kit.Start(ctx, func(ctx context.Context) error { return l.open(ctx, from, agents) }))
		open = agents
		if err := l.reachable(ctx, from, agents); err != nil {
			return err
		}
		for _, count := range crowdSizes() {
			b.say("agents: %d, callers: %d", agents, count)
			if err := gets(ctx, s, fmt.Sprint("agents: ", agents), count, processes, spread([]caller{l.direct}, count, smallPath), spread(l.callers[:agents], count, smallPath)); err != nil {
				return err
			}
		}
	}
	b.say("one stuck spoke")
	return l.stuck(ctx, s, w, processes)
}

// stuck measures calls to all spokes but one, whose callers wait for ever or never
// read.
func (l *liveSpokes) stuck(ctx context.Context, s *report.Scenario, w *benchEnv, processes []subject) error {
	const (
		waiting, unread = 500, 16
		count           = 16
		round           = 10 * time.Second // with fewer calls the last percent is a handful
	)
	others := callers{count: count, pause: count * time.Second / paced, call: spread(l.callers[1:], count, smallPath)}
	var before, beside answers
	if err := measurePhase(ctx, s, "before a spoke is stuck", processes, func() (err error) {
		before, err = others.run(ctx, round)
		return err
	}); err != nil {
		return err
	}
	config, err := w.h.ClusterAccess(ctx, w.hub, l.names[0])
	if err != nil {
		return err
	}
	config.Dial = (&net.Dialer{}).DialContext // not on the connections of the others
	hanging, err := newCaller(config)
	if err != nil {
		return err
	}
	held, release := context.WithCancel(ctx)
	defer release()
	var calls errgroup.Group
	for range waiting {
		calls.Go(func() error {
			res, err := hanging.begin(held, hangsPath)
			if err == nil {
				err = errors.Join(fmt.Errorf("GET %s is answered", hangsPath), res.Body.Close())
			}
			if held.Err() == nil {
				return err
			}
			return nil
		})
	}
	for range unread {
		res, err := hanging.begin(held, endlessPath)
		if err != nil {
			return err
		}
		context.AfterFunc(held, func() { _ = res.Body.Close() }) // never read
	}
	if err := harness.Eventually(ctx, "all calls to the stuck spoke are under way", func() error {
		n, err := counter(ctx, w.principal.AdminAddress, "argomesh_tunnel_connections", nil)
		if err == nil && n < waiting+unread {
			err = fmt.Errorf("%v are", n)
		}
		return err
	}); err != nil {
		return err
	}
	if err := measurePhase(ctx, s, "beside a stuck spoke", processes, func() (err error) {
		beside, err = others.run(ctx, round)
		return err
	}); err != nil {
		return err
	}
	release()
	if err := calls.Wait(); err != nil {
		return err
	}
	c := compared{direct: before, proxied: beside}
	remark := func(q float64) string {
		return fmt.Sprintf("%s, without %s; %d calls to the stuck one are never answered and %d never read", report.Quantity(report.Milliseconds(report.Quantile(beside.took, q)), "ms"),
			report.Quantity(report.Milliseconds(report.Quantile(before.took, q)), "ms"), waiting, unread)
	}
	s.Target("beside a stuck spoke: GET of the others, beyond without it, p50", c.more(0.5), "ms", report.AtMost(moreMedian), remark(0.5))
	s.Target("beside a stuck spoke: GET of the others, beyond without it, p99", c.more(0.99), "ms", report.AtMost(moreMost), remark(0.99))
	return nil
}
