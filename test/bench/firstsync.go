//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

const (
	fleetApps = 100 // Applications of each agent
	// fleetIdle is how long a fleet in which nothing happens is looked at.
	fleetIdle = 30 * time.Second
	// fleetGrowth is how much more a principal may take for one Application when there
	// are ten times as many agents, in percent.
	fleetGrowth = 150
)

// fleetDefault are the numbers of agents, unless others are asked for.
const fleetDefault = "50,160,500"

// fleetSizes reads numbers of agents, of which each is more than the one before.
func fleetSizes(list string) ([]int, error) {
	var sizes []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxFleet || len(sizes) > 0 && n <= sizes[len(sizes)-1] {
			return nil, fmt.Errorf("-agents %s: %q is not a number up to %d that is more than the one before", list, text, maxFleet)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// maxFleet is how many agents agentNames can name.
const maxFleet = 9999

// fleetBy measures how the first sync of many agents grows with their number, in one of
// the mappings, and what it costs when none of them continues the hub's history.
func fleetBy(by mappedBy) func(context.Context, *bench, *report.Scenario) error {
	return func(ctx context.Context, b *bench, s *report.Scenario) error { return growFleet(ctx, b, s, by) }
}

// fleetEnv is a hub to which agents and their Applications are added.
type fleetEnv struct {
	*benchEnv
	b      *bench
	s      *report.Scenario
	client dynamic.Interface
	ca     authority
	agents []string // those there are
}

func growFleet(ctx context.Context, b *bench, s *report.Scenario, by mappedBy) (err error) {
	s.Setup = fmt.Sprintf("Real kube-apiserver and etcd for the hub, our principal, %d small Applications of about 1 KiB for each of %s agents, which are the real stream "+
		"client and mirror over stores in memory that only keep bytes, with an SVID and a TLS connection each, in one process with the load. Before each first sync the principal "+
		"is killed and started, and the agents have empty stores. The principal has the limits of a large hub. Statuses are left out: what limits those is the hub's API server, see T2. "+
		"At the end of each size both sides are compared, Application by Application.", fleetApps, spelled(b.fleet))
	// With 2 GiB an API server is at its limit with 20,000 Applications, and collects ever
	// more from there on, on the cores of the principal.
	b.serverMemory, b.mapping = "6GiB", by
	w, err := startBenchEnvWith(ctx, b, false, func(ctx context.Context, w *benchEnv) error {
		return startPrincipalWith(ctx, w, largeHub())
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	f := &fleetEnv{benchEnv: w, b: b, s: s}
	config := w.hub.REST()
	config.QPS = -1
	if f.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if f.ca, err = newAuthority(w.caDir); err != nil {
		return err
	}
	for _, size := range b.fleet {
		if err := f.grow(ctx, size); err != nil {
			return err
		}
		one, err := f.sync(ctx)
		if err != nil {
			return err
		}
		s.FirstSyncs = append(s.FirstSyncs, one)
	}
	grown(s)
	return f.breakAll(ctx)
}

// grown tells how the first syncs grew from the smallest fleet to the largest.
func grown(s *report.Scenario) {
	first, last := s.FirstSyncs[0], s.FirstSyncs[len(s.FirstSyncs)-1]
	if first.Agents == last.Agents {
		return
	}
	than := fmt.Sprintf("with %d agents, of that with %d", last.Agents, first.Agents)
	s.Target("CPU of the principal for one Application "+than, 100*last.CPU/first.CPU, "%", report.AtMost(fleetGrowth))
	s.Target("memory of the principal for one Application "+than, 100*(last.MemoryMiB/float64(last.Applications))/(first.MemoryMiB/float64(first.Applications)), "%", report.AtMost(fleetGrowth))
	s.Note("memory of the principal for each Application more", 1024*(last.MemoryMiB-first.MemoryMiB)/float64(last.Applications-first.Applications), "KiB",
		fmt.Sprintf("from %d to %d agents", first.Agents, last.Agents))
	s.Note("first sync: time grows with the number of Applications to the power of", exponent(first, last, func(f report.FirstSync) float64 { return f.Seconds }), "", "1 is proportional")
	s.Note("first sync: CPU of the principal to the power of", exponent(first, last, func(f report.FirstSync) float64 { return f.CPU * float64(f.Applications) }), "", "1 is proportional")
}

// exponent is that of the power of the number of Applications with which what grows.
func exponent(first, last report.FirstSync, what func(report.FirstSync) float64) float64 {
	return math.Log(what(last)/what(first)) / math.Log(float64(last.Applications)/float64(first.Applications))
}

// spelled writes numbers for people.
func spelled(numbers []int) string {
	var all []string
	for _, n := range numbers {
		all = append(all, strconv.Itoa(n))
	}
	if len(all) == 1 {
		return all[0]
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

// name is the hub's name of the nth Application of an agent, and namespace where it is.
func (f *fleetEnv) name(agent string, n int) (name, namespace string) {
	return fmt.Sprintf("%s-app-%03d", agent, n), f.mapping.namespace(agent)
}

// what begins the name of a result.
func (f *fleetEnv) what() string {
	return fmt.Sprintf("%d agents, %s Applications", len(f.agents), report.Thousands(len(f.agents)*fleetApps))
}

// grow registers agents and makes their Applications, until there are so many. It ends
// the principal.
func (f *fleetEnv) grow(ctx context.Context, size int) error {
	added := agentNames(size)[len(f.agents):]
	f.agents = agentNames(size)
	f.b.say("%s: registering %d of them", f.what(), len(added))
	if err := register(ctx, f.client, added); err != nil {
		return err
	}
	if err := f.principal.Kill(); err != nil { // it would have a part in what follows
		return err
	}
	f.b.say("%s: creating %s of them", f.what(), report.Thousands(len(added)*fleetApps))
	var made atomic.Int64
	return f.b.moving(ctx, f.what()+": created", len(added)*fleetApps, func() int { return int(made.Load()) }, func(ctx context.Context) error {
		return each(ctx, added, func(ctx context.Context, agent string) error {
			if err := f.b.persistently(ctx, func(ctx context.Context) error { return f.hub.EnsureNamespace(ctx, agent) }); err != nil {
				return err
			}
			for n := range fleetApps {
				name, namespace := f.name(agent, n)
				if err := f.b.persistently(ctx, func(ctx context.Context) error {
					err := create(ctx, f.client.Resource(harness.Applications).Namespace(namespace), application(name, namespace, agent, revision(1)))
					if apierrors.IsAlreadyExists(err) {
						return nil // only the answer was lost
					}
					return err
				}); err != nil {
					return err
				}
				made.Add(1)
			}
			return nil
		})
	})
}

// sync measures the start of the principal and the first sync of all agents, and looks
// at both sides when nothing happens any more.
func (f *fleetEnv) sync(ctx context.Context) (one report.FirstSync, err error) {
	what := f.what()
	one = report.FirstSync{Agents: len(f.agents), Applications: len(f.agents) * fleetApps}
	if one.Load, err = loadAverage(); err != nil {
		return one, err
	}
	crowd, err := newCrowdOf(f.benchEnv, f.ca, f.agents, "")
	if err != nil {
		return one, err
	}
	f.b.say("%s: starting the principal", what)
	if err := measurePhase(ctx, f.s, what+": start", f.processes(), func() error {
		begun := time.Now()
		err := f.principal.Start(ctx)
		one.ReadySeconds = time.Since(begun).Seconds()
		return err
	}); err != nil {
		return one, err
	}
	f.s.Note(what+": start of the principal until it is ready", one.ReadySeconds, "s", fmt.Sprintf("load average %.1f", one.Load))
	started := f.usage("principal")
	f.b.say("%s: first sync", what)
	arrived, begun := crowd.expectAll(one.Applications, revision(1)), time.Now()
	stop := kit.Start(ctx, crowd.run)
	defer func() { err = errors.Join(err, stop()) }()
	if err := measurePhase(ctx, f.s, what+": first sync", f.processes(), func() error {
		return f.b.moving(ctx, what+": arrived", one.Applications, arrived.count, arrived.wait)
	}); err != nil {
		return one, err
	}
	one.Seconds = time.Since(begun).Seconds()
	synced := f.usage("principal")
	one.CPU, one.MemoryMiB = synced.CPUSeconds/float64(one.Applications), max(started.PeakMiB, synced.PeakMiB)
	f.s.Note(what+": first sync", one.Seconds, "s", "from the first dial to the last Application on its spoke")
	f.s.Note(what+": the same, Applications", float64(one.Applications)/one.Seconds, "/s")
	f.s.Note(what+": the same, CPU of the principal for one Application", one.CPU*1e6, "µs")
	f.s.Note(what+": most memory of the principal", one.MemoryMiB, "MiB", fmt.Sprintf("%.1f KiB for one Application", one.MemoryMiB*1024/float64(one.Applications)))
	f.b.say("%s: idle", what)
	if err := measurePhase(ctx, f.s, what+": idle", f.processes(), func() error { return idle(ctx, fleetIdle) }); err != nil {
		return one, err
	}
	one.IdlePercent = f.usage("principal").CPUPercent
	f.s.Note(what+": idle, share of a core that the principal takes", one.IdlePercent, "%")
	f.b.say("%s: comparing both sides", what)
	begun = time.Now()
	var read atomic.Int64
	if err := f.b.moving(ctx, what+": compared", one.Applications, func() int { return int(read.Load()) }, func(ctx context.Context) (err error) {
		one.Compared, err = crowd.compare(ctx, f.b, f.client, func(n int) { read.Store(int64(n)) })
		return err
	}); err != nil {
		return one, err
	}
	if one.Compared != one.Applications {
		return one, fmt.Errorf("the hub has %d Applications, not %d", one.Compared, one.Applications)
	}
	f.s.Note(what+": Applications that were compared on both sides, none of them lost", float64(one.Compared), "", fmt.Sprintf("read from the hub's API server in %.0f s", time.Since(begun).Seconds()))
	return one, nil
}

// usage is that of a process in the last phase.
func (f *fleetEnv) usage(process string) report.Usage {
	for i := len(f.s.Processes) - 1; i >= 0; i-- {
		if u := f.s.Processes[i]; u.Process == process {
			return u
		}
	}
	return report.Usage{}
}

// breakAll lets all agents come back with empty stores and with the history of another
// hub, as after a restore of the hub's etcd, and measures how long it takes until each
// has a new one.
func (f *fleetEnv) breakAll(ctx context.Context) (err error) {
	what := f.what()
	f.b.say("%s: none continues the hub's history", what)
	crowd, err := newCrowdOf(f.benchEnv, f.ca, f.agents, "another-hub")
	if err != nil {
		return err
	}
	renewed, end, err := f.newHistories(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	begun := time.Now()
	stop := kit.Start(ctx, crowd.run)
	defer func() { err = errors.Join(err, stop()) }()
	if err := measurePhase(ctx, f.s, what+": new histories", f.processes(), func() error {
		return f.b.moving(ctx, what+": histories", len(f.agents), renewed.count, renewed.wait)
	}); err != nil {
		return err
	}
	f.s.Note(what+": no history continues, until the last agent has a new one", time.Since(begun).Seconds(), "s", "35 s of that by design; all Applications sent once more")
	f.s.Note(what+": the same, CPU of the hub's API server", f.usage("hub kube-apiserver").CPUSeconds, "s")
	f.s.Note(what+": the same, CPU of the principal", f.usage("principal").CPUSeconds, "s")
	return nil
}

// newHistories waits for each agent to have another history than now.
func (f *fleetEnv) newHistories(ctx context.Context) (renewed *arrivals, end func() error, err error) {
	where := f.client.Resource(v1alpha1.AgentResource).Namespace(harness.ArgoCDNamespace)
	list, err := where.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	history := func(o *unstructured.Unstructured) string {
		id, _, _ := unstructured.NestedString(o.Object, "status", "history", "id") // none before the first
		return id
	}
	before := make(map[string]string, len(list.Items))
	for i := range list.Items {
		before[list.Items[i].GetName()] = history(&list.Items[i])
	}
	arrived := newArrivals(len(before))
	stop := kit.Start(ctx, func(ctx context.Context) error {
		return followAgents(ctx, f.client, func(o *unstructured.Unstructured) {
			if id := history(o); id != "" && id != before[o.GetName()] {
				arrived.add(o.GetName())
			}
		})
	})
	return arrived, stop, nil
}
