//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/test/harness"
)

const (
	fleetApps = 100 // Applications of each agent
	// fleetIdle is how long a fleet in which nothing happens is looked at.
	fleetIdle = 30 * time.Second
	// fleetGrowth is how much more a principal may take for one Application when there
	// are ten times as many agents, in percent.
	fleetGrowth = 150
)

// fleetSizes are the numbers of agents, in order.
var fleetSizes = []int{50, 160, 500}

// fleetBy measures how the first sync of many agents grows with their number, in one of
// the mappings, and what it costs when none of them continues the hub's history.
func fleetBy(mapping string) func(context.Context, *bench, *Scenario) error {
	return func(ctx context.Context, b *bench, s *Scenario) error { return growFleet(ctx, b, s, mapping) }
}

// fleetWorld is a hub to which agents and their Applications are added.
type fleetWorld struct {
	*world
	b      *bench
	s      *Scenario
	by     string
	client dynamic.Interface
	ca     authority
	agents []string // those there are
}

func growFleet(ctx context.Context, b *bench, s *Scenario, by string) (err error) {
	s.Setup = fmt.Sprintf("Real kube-apiserver and etcd for the hub, our principal, %d small Applications of about 1 KiB for each of 50, 160 and 500 agents, which are the real stream "+
		"client and mirror over stores in memory that only keep bytes, with an SVID and a TLS connection each, in one process with the load. Before each first sync the principal "+
		"is killed and started, and the agents have empty stores. Statuses are left out: what limits those is the hub's API server, see T2.", fleetApps)
	w, err := startWorldWith(ctx, b, false, func(ctx context.Context, w *world) error {
		return startPrincipalWith(ctx, w, harness.Settings{"mapping.by": by})
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	f := &fleetWorld{world: w, b: b, s: s, by: by}
	config := w.hub.REST()
	config.QPS = -1
	if f.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if f.ca, err = newAuthority(w.caDir); err != nil {
		return err
	}
	var first, last use
	for i, size := range fleetSizes {
		if err := f.grow(ctx, size); err != nil {
			return err
		}
		if last, err = f.sync(ctx); err != nil {
			return err
		}
		if i == 0 {
			first = last
		}
	}
	s.target("CPU of the principal for one Application with 500 agents, of that with 50", 100*last.cpu/first.cpu, "%", atMost(fleetGrowth))
	s.target("memory of the principal for one Application with 500 agents, of that with 50", 100*last.memory/first.memory, "%", atMost(fleetGrowth))
	return f.breakAll(ctx)
}

// name is the hub's name of the nth Application of an agent, and namespace where it is.
func (f *fleetWorld) name(agent string, n int) (name, namespace string) {
	name = fmt.Sprintf("%s-app-%03d", agent, n)
	if f.by == "destination" {
		return name, harness.ArgoCDNamespace
	}
	return name, agent
}

// what begins the name of a result.
func (f *fleetWorld) what() string {
	return fmt.Sprintf("%d agents, %s Applications", len(f.agents), thousands(len(f.agents)*fleetApps))
}

// grow registers agents and makes their Applications, until there are so many. It ends
// the principal.
func (f *fleetWorld) grow(ctx context.Context, size int) error {
	added := agentNames(size)[len(f.agents):]
	f.agents = agentNames(size)
	f.b.say("%s: registering %d of them", f.what(), len(added))
	if err := register(ctx, f.client, added); err != nil {
		return err
	}
	if err := f.principal.Kill(); err != nil { // it would have a part in what follows
		return err
	}
	f.b.say("%s: creating %s of them", f.what(), thousands(len(added)*fleetApps))
	return each(ctx, added, func(ctx context.Context, agent string) error {
		if err := f.hub.EnsureNamespace(ctx, agent); err != nil {
			return err
		}
		for n := range fleetApps {
			name, namespace := f.name(agent, n)
			if err := create(ctx, f.client.Resource(harness.Applications).Namespace(namespace), application(name, namespace, agent, revision(1))); err != nil {
				return err
			}
		}
		return nil
	})
}

// use is what a principal took for one Application.
type use struct {
	cpu    float64 // in seconds
	memory float64 // in MiB, at most
}

// sync measures the start of the principal and the first sync of all agents, and looks
// at both sides when nothing happens any more.
func (f *fleetWorld) sync(ctx context.Context) (u use, err error) {
	what, apps := f.what(), len(f.agents)*fleetApps
	crowd, err := newCrowdOf(f.world, f.ca, f.agents, "", func() backends.Store { return newByteStore() })
	if err != nil {
		return u, err
	}
	f.b.say("%s: starting the principal", what)
	if err := f.s.measure(ctx, what+": start", f.processes(), func() error {
		begun := time.Now()
		if err := f.principal.Start(ctx); err != nil {
			return err
		}
		f.s.note(what+": start of the principal until it is ready", time.Since(begun).Seconds(), "s")
		return nil
	}); err != nil {
		return u, err
	}
	started := f.usage("principal")
	f.b.say("%s: first sync", what)
	limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	arrived, begun := crowd.expectAll(apps, revision(1)), time.Now()
	stop := background(ctx, crowd.run)
	defer func() { err = errors.Join(err, stop()) }()
	if err := f.s.measure(ctx, what+": first sync", f.processes(), func() error { return arrived.wait(limited) }); err != nil {
		return u, err
	}
	took, synced := time.Since(begun), f.usage("principal")
	u = use{cpu: synced.CPUSeconds / float64(apps), memory: max(started.PeakMiB, synced.PeakMiB) / float64(apps)}
	f.s.note(what+": first sync", took.Seconds(), "s", "from the first dial to the last Application on its spoke")
	f.s.note(what+": the same, Applications", float64(apps)/took.Seconds(), "/s")
	f.s.note(what+": the same, CPU of the principal for one Application", u.cpu*1e6, "µs")
	f.s.note(what+": most memory of the principal", max(started.PeakMiB, synced.PeakMiB), "MiB", fmt.Sprintf("%.1f KiB for one Application", u.memory*1024))
	f.b.say("%s: idle", what)
	if err := f.s.measure(ctx, what+": idle", f.processes(), func() error { return idle(ctx, fleetIdle) }); err != nil {
		return u, err
	}
	f.s.note(what+": idle, share of a core that the principal takes", f.usage("principal").CPUPercent, "%")
	f.b.say("%s: comparing both sides", what)
	begun = time.Now()
	compared, err := crowd.compare(ctx, f.client)
	if err != nil {
		return u, err
	}
	if compared != apps {
		return u, fmt.Errorf("the hub has %d Applications, not %d", compared, apps)
	}
	f.s.note(what+": Applications that were compared on both sides, none of them lost", float64(compared), "", fmt.Sprintf("read from the hub's API server in %.0f s", time.Since(begun).Seconds()))
	return u, nil
}

// usage is that of a process in the last phase.
func (f *fleetWorld) usage(process string) Usage {
	for i := len(f.s.Processes) - 1; i >= 0; i-- {
		if u := f.s.Processes[i]; u.Process == process {
			return u
		}
	}
	return Usage{}
}

// breakAll lets all agents come back with empty stores and with the history of another
// hub, as after a restore of the hub's etcd, and measures how long it takes until each
// has a new one.
func (f *fleetWorld) breakAll(ctx context.Context) (err error) {
	what := f.what()
	f.b.say("%s: none continues the hub's history", what)
	crowd, err := newCrowdOf(f.world, f.ca, f.agents, "another-hub", func() backends.Store { return newByteStore() })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	renewed, end, err := f.newHistories(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	begun := time.Now()
	stop := background(ctx, crowd.run)
	defer func() { err = errors.Join(err, stop()) }()
	if err := f.s.measure(ctx, what+": new histories", f.processes(), func() error { return renewed.wait(ctx) }); err != nil {
		return err
	}
	f.s.note(what+": no history continues, until the last agent has a new one", time.Since(begun).Seconds(), "s", "35 s of that by design; all Applications sent once more")
	f.s.note(what+": the same, CPU of the hub's API server", f.usage("hub kube-apiserver").CPUSeconds, "s")
	f.s.note(what+": the same, CPU of the principal", f.usage("principal").CPUSeconds, "s")
	return nil
}

// newHistories waits for each agent to have another history than now.
func (f *fleetWorld) newHistories(ctx context.Context) (renewed *arrivals, end func() error, err error) {
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
	stop := background(ctx, func(ctx context.Context) error {
		return followAgents(ctx, f.client, func(o *unstructured.Unstructured) {
			if id := history(o); id != "" && id != before[o.GetName()] {
				arrived.add(o.GetName())
			}
		})
	})
	return arrived, stop, nil
}
