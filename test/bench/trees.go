//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/stream/tunnel/acceptor"

	"github.com/argomesh/argomesh/proxies/redis/spoke"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

const (
	// t8Agents is the largest number of agents.
	t8Agents = 200
	// t8Rate is the load under which latency is measured, in reads per second of all
	// connections together: some forty open pages.
	t8Rate = 200
	// t8Time is how long each load lasts that is as high as goes, and t8Paced one at
	// t8Rate: long enough that the hundredth that is slowest is more than one moment.
	t8Time, t8Paced = 5 * time.Second, 20 * time.Second
	// t8Value is the length of a tree: what a few hundred resources take, compressed.
	t8Value = 8 << 10
)

// runT8 measures reads and subscriptions of agents' keys beside those of the Redis in
// which they are.
func runT8(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	s.Setup = fmt.Sprintf("Real kube-apiserver with %d Agents, our principal binary, Envoy before it and a real Redis for the hub. The agents' ends are the real tunnel acceptor and "+
		"redis.Spoke, all in the process of the load, with one Redis for all but the one that is stuck in the end. The client is go-redis in RESP3, one connection to each. Direct is the same client at "+
		"the agents' Redis, in the same run. Values have %d KiB.", t8Agents+1, t8Value>>10)
	w, err := startBenchEnvWith(ctx, b, false, startRedisDoor)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	edgeRedis, err := w.h.StartRedis(ctx, "edge-redis")
	if err != nil {
		return err
	}
	stuckRedis, err := w.h.StartRedis(ctx, "stuck-redis")
	if err != nil {
		return err
	}
	agents := agentNames(t8Agents + 1)
	stuck := agents[t8Agents]
	at := func(agent string) string {
		if agent == stuck {
			return stuckRedis.Address
		}
		return edgeRedis.Address
	}
	stop, err := w.serveRedis(ctx, b, agents, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, agent := range agents {
		spoke := t8Client(at(agent))
		if err := errors.Join(spoke.Set(ctx, t8Key("", agent), bytes.Repeat([]byte("x"), t8Value), 0).Err(), spoke.Close()); err != nil {
			return err
		}
	}
	b.say("waiting for the tunnels")
	if err := w.treesReachable(ctx, agents); err != nil {
		return err
	}
	for _, n := range []int{1, 20, t8Agents} {
		processes := []subject{{"principal", w.principal.PID}, {"Envoy", w.envoy.PID}, {"Redis of the spokes", edgeRedis.PID}, self("load, agents' ends")}
		if err := measurePhase(ctx, s, "GET, direct and through, "+count(n, "agent"), processes, func() error {
			for _, connections := range []int{1, 16, 100} {
				if err := w.readTrees(ctx, b, s, edgeRedis.Address, agents[:n], connections); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for _, n := range []int{1, 20, t8Agents} {
		if err := w.hearTrees(ctx, b, s, edgeRedis.Address, agents[:n]); err != nil {
			return err
		}
	}
	return w.readBesideStuck(ctx, b, s, agents[:19], stuck, stuckRedis)
}

// startRedisDoor starts the principal of an environment with a Redis proxy and its Envoy.
func startRedisDoor(ctx context.Context, w *benchEnv) error {
	identity, err := w.identity(ctx, "principal", principalID+",dns=localhost")
	if err != nil {
		return err
	}
	hubRedis, err := w.h.StartRedis(ctx, "hub-redis")
	if err != nil {
		return err
	}
	cfg := w.principalConfig(identity, nil)
	cfg.Redis = hubRedis
	door, err := w.h.StartFrontDoor(ctx, cfg)
	if err != nil {
		return err
	}
	w.principal, w.redisDoor, w.envoy = door.Principal, door.RedisAddress, door.Envoy
	return nil
}

// serveRedis registers agents with an Application each, and serves their ends of the
// Redis proxy, with the Redis of each at an address, until stop is called.
func (w *benchEnv) serveRedis(ctx context.Context, b *bench, agents []string, at func(agent string) string) (stop func() error, err error) {
	config := w.hub.REST()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	b.say("registering %d agents", len(agents))
	if err := register(ctx, client, agents); err != nil {
		return nil, err
	}
	if err := each(ctx, agents, func(ctx context.Context, agent string) error {
		namespace := w.mapping.namespace(agent)
		if err := w.hub.EnsureNamespace(ctx, namespace); err != nil {
			return err
		}
		return create(ctx, client.Resource(harness.Applications).Namespace(namespace), application(t8App(agent), namespace, agent, revision(1)))
	}); err != nil {
		return nil, err
	}
	ca, err := newAuthority(w.caDir)
	if err != nil {
		return nil, err
	}
	acceptors := make([]*acceptor.Acceptor, len(agents))
	for i, agent := range agents {
		spoke, err := spoke.New(spoke.Config{
			Dial: func(ctx context.Context) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", at(agent))
			},
			Credentials: func(context.Context) (string, string, error) { return "", "", nil },
			Version:     clusterinfo.Version,
			Allow:       func(appkey.Instance) bool { return true },
			Metrics:     prometheus.NewRegistry(), Log: zerolog.Nop(),
		})
		if err != nil {
			return nil, err
		}
		name, err := identity.ParseAgentName(agent)
		if err != nil {
			return nil, err
		}
		creds, err := ca.credentials(agent)
		if err != nil {
			return nil, err
		}
		if acceptors[i], err = acceptor.New(acceptor.Config{
			Target: w.principal.Address, Credentials: creds, Agent: name,
			Services: map[stream.Service]tunnel.Handler{stream.Redis: spoke.Serve},
			Metrics:  prometheus.NewRegistry(), Log: zerolog.Nop(),
		}); err != nil {
			return nil, err
		}
	}
	return kit.Start(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, a := range acceptors {
			g.Go(func() error { return a.Run(ctx) })
		}
		return g.Wait()
	}), nil
}

// t8App is the Application of an agent, which is in a Redis with all others.
func t8App(agent string) string { return "shop-" + agent }

// t8Key is that of the tree of an agent's Application, which is in a namespace; none is
// that of Argo CD.
func t8Key(namespace, agent string) string {
	return "app|resources-tree|" + (appkey.Instance{Namespace: namespace, Name: t8App(agent)}).String() + "|" + clusterinfo.Version + ".gz"
}

// t8Channel is where a change of it is told of.
func t8Channel(namespace, agent string) string {
	return "app|managed-resources|" + (appkey.Instance{Namespace: namespace, Name: t8App(agent)}).String() + "|" + clusterinfo.Version
}

// treeNamespace is that of the keys of an agent's Application on the hub, in whose own
// namespace Argo CD writes none.
func (w *benchEnv) treeNamespace(agent string) string {
	if namespace := w.mapping.namespace(agent); namespace != harness.ArgoCDNamespace {
		return namespace
	}
	return ""
}

// treeKey is the hub's key of the tree of an agent's Application.
func (w *benchEnv) treeKey(agent string) string { return t8Key(w.treeNamespace(agent), agent) }

// t8Client is one connection, as Argo CD's.
func t8Client(address string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: address, PoolSize: 1, MaxRetries: -1, ReadTimeout: 30 * time.Second, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// treesReachable waits until every agent answers.
func (w *benchEnv) treesReachable(ctx context.Context, agents []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c := t8Client(w.redisDoor)
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, agent := range agents {
		if err := harness.Eventually(ctx, "agent "+agent, func() error { return c.Get(ctx, w.treeKey(agent)).Err() }); err != nil {
			return err
		}
	}
	return nil
}

// readTrees measures reads of the trees of agents over so many connections: at a rate,
// and as many as go.
func (w *benchEnv) readTrees(ctx context.Context, b *bench, s *report.Scenario, direct string, agents []string, connections int) error {
	what := fmt.Sprintf("%s, %s", count(len(agents), "agent"), count(connections, "connection"))
	b.say("GET: %s", what)
	type loaded struct{ paced, closed []time.Duration }
	var through, beside loaded
	for _, side := range []struct {
		address string
		keys    func(i int) string
		into    *loaded
	}{
		{direct, func(i int) string { return t8Key("", agents[i%len(agents)]) }, &beside},
		{w.redisDoor, func(i int) string { return w.treeKey(agents[i%len(agents)]) }, &through},
	} {
		var err error
		if side.into.paced, err = t8Reads(ctx, side.address, side.keys, connections, time.Duration(connections)*time.Second/t8Rate, t8Paced); err != nil {
			return err
		}
		if side.into.closed, err = t8Reads(ctx, side.address, side.keys, connections, 0, t8Time); err != nil {
			return err
		}
	}
	p := func(l []time.Duration, q float64) string {
		return report.Quantile(l, q).Round(time.Microsecond * 10).String()
	}
	s.Target(fmt.Sprintf("GET at %d/s, %s: p99 over direct", t8Rate, what), report.Milliseconds(report.Quantile(through.paced, 0.99)-report.Quantile(beside.paced, 0.99)), "ms", report.AtMost(2),
		fmt.Sprintf("p50 %s and p99 %s, direct %s and %s", p(through.paced, 0.5), p(through.paced, 0.99), p(beside.paced, 0.5), p(beside.paced, 0.99)))
	s.Note(fmt.Sprintf("GET as many as go, %s", what), float64(len(through.closed))/t8Time.Seconds(), "/s",
		fmt.Sprintf("p50 %s and p99 %s; direct %s, p99 %s", p(through.closed, 0.5), p(through.closed, 0.99), report.Quantity(float64(len(beside.closed))/t8Time.Seconds(), "/s"), p(beside.closed, 0.99)))
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// t8Reads reads over so many connections for a while, each with a pause between two
// starts, and returns how long each read took. A read that comes late because of the
// one before counts from when it was due. Connecting does not count.
func t8Reads(ctx context.Context, address string, key func(int) string, connections int, pause, during time.Duration) (took []time.Duration, err error) {
	clients := make([]*goredis.Client, connections)
	defer func() {
		for _, c := range clients {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	for i := range clients {
		clients[i] = t8Client(address)
		if err := clients[i].Ping(ctx).Err(); err != nil {
			return nil, err
		}
	}
	mine := make([][]time.Duration, connections)
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for n, c := range clients {
		g.Go(func() error {
			due := begin.Add(pause * time.Duration(n) / time.Duration(connections))
			for i := n; due.Before(begin.Add(during)); i++ {
				if err := idle(ctx, time.Until(due)); err != nil {
					return err
				}
				if pause == 0 {
					due = time.Now()
				}
				value, err := c.Get(ctx, key(i)).Bytes()
				if err == nil && len(value) != t8Value {
					err = fmt.Errorf("it has %d bytes", len(value))
				}
				if err != nil {
					return fmt.Errorf("GET %s: %w", key(i), err)
				}
				mine[n] = append(mine[n], time.Since(due))
				due = due.Add(pause)
			}
			return nil
		})
	}
	err = g.Wait()
	return slices.Concat(mine...), err
}

// readBesideStuck measures reads over as many connections as there are open pages, some
// of which show an agent whose Redis stands still. None of them is an error.
func (w *benchEnv) readBesideStuck(ctx context.Context, b *bench, s *report.Scenario, others []string, stuck string, its *harness.Redis) (err error) {
	const pages, pagesOfStuck = 50, 3
	b.say("GET beside one that is stuck")
	read := func() ([]time.Duration, error) {
		const connections = pages - pagesOfStuck
		return t8Reads(ctx, w.redisDoor, func(i int) string { return w.treeKey(others[i%len(others)]) }, connections, connections*time.Second/t8Rate, t8Paced)
	}
	without, err := read()
	if err != nil {
		return err
	}
	if err := its.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, its.Signal(syscall.SIGCONT)) }()
	var answered atomic.Int64
	stop := kit.Start(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for range pagesOfStuck {
			g.Go(func() error {
				c := t8Client(w.redisDoor)
				for ctx.Err() == nil {
					value, err := c.Get(ctx, w.treeKey(stuck)).Bytes()
					switch {
					case ctx.Err() != nil:
					case err != nil || len(value) != t8Value:
						return errors.Join(fmt.Errorf("GET of the one that is stuck has %d bytes", len(value)), err, c.Close())
					default:
						answered.Add(1)
					}
				}
				return c.Close()
			})
		}
		return g.Wait()
	})
	beside, err := read()
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	// The proxy gives up after 2 s; more answers would be those of one that is not stuck.
	if n := answered.Load(); n == 0 || n > pagesOfStuck*int64(t8Paced/time.Second) {
		return fmt.Errorf("%d last values were shown of the one that is stuck", n)
	}
	s.Target(fmt.Sprintf("GET at %d/s, %d pages over %d agents, one of which is stuck: p99 of the others beyond without it", t8Rate, pages, len(others)+1),
		report.Milliseconds(report.Quantile(beside, 0.99)-report.Quantile(without, 0.99)), "ms", report.AtMost(2),
		fmt.Sprintf("p50 %.2f ms and p99 %.2f ms, without %.2f and %.2f ms; %d last values of the stuck one", report.Milliseconds(report.Quantile(beside, 0.5)), report.Milliseconds(report.Quantile(beside, 0.99)),
			report.Milliseconds(report.Quantile(without, 0.5)), report.Milliseconds(report.Quantile(without, 0.99)), answered.Load()))
	return nil
}

// hearTrees measures how soon a message is there, with one subscriber for each agent.
func (w *benchEnv) hearTrees(ctx context.Context, b *bench, s *report.Scenario, direct string, agents []string) error {
	b.say("SUBSCRIBE: %s", count(len(agents), "agent"))
	hub, spoke := make([]string, len(agents)), make([]string, len(agents))
	for i, agent := range agents {
		hub[i], spoke[i] = t8Channel(w.treeNamespace(agent), agent), t8Channel("", agent)
	}
	through, throughAll, err := t8Hears(ctx, w.redisDoor, hub, direct, spoke)
	if err != nil {
		return err
	}
	beside, besideAll, err := t8Hears(ctx, direct, spoke, direct, spoke)
	if err != nil {
		return err
	}
	what := "SUBSCRIBE, " + count(len(agents), "agent") + ", one subscriber each: PUBLISH on the spoke to message, "
	ms := func(l []time.Duration, q float64) string {
		return fmt.Sprintf("%.2f ms", report.Milliseconds(report.Quantile(l, q)))
	}
	s.Target(what+"one after the other, p99", report.Milliseconds(report.Quantile(through, 0.99)), "ms", report.AtMost(20),
		fmt.Sprintf("p50 %s, slowest %s; direct p50 %s, p99 %s", ms(through, 0.5), ms(through, 1), ms(beside, 0.5), ms(beside, 0.99)))
	if len(agents) > 1 {
		s.Note(what+"all at once, p99", report.Milliseconds(report.Quantile(throughAll, 0.99)), "ms",
			fmt.Sprintf("p50 %s; direct p50 %s, p99 %s", ms(throughAll, 0.5), ms(besideAll, 0.5), ms(besideAll, 0.99)))
	}
	return nil
}

// t8Heard is a message that came.
type t8Heard struct {
	payload string
	at      time.Time
}

// t8Hears subscribes to one channel each, and publishes on the spoke to those that go by
// them there: to one after the other, and to all at once. It returns how long each
// message took.
func t8Hears(ctx context.Context, address string, channels []string, spoke string, there []string) (single, all []time.Duration, err error) {
	const messages, rounds = 100, 10
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	publisher := t8Client(spoke)
	defer func() { err = errors.Join(err, publisher.Close()) }()
	arrived := make(chan t8Heard, len(channels))
	g, gctx := errgroup.WithContext(ctx)
	defer func() { err = errors.Join(err, g.Wait()) }()
	defer cancel()
	for _, channel := range channels {
		c := t8Client(address)
		s := c.Subscribe(gctx, channel)
		stop := context.AfterFunc(gctx, func() { _ = s.Close() }) // Receive itself does not look at gctx
		g.Go(func() (err error) {
			defer func() {
				if stop() {
					err = errors.Join(err, s.Close())
				}
				err = errors.Join(err, c.Close())
			}()
			for {
				m, err := s.Receive(gctx)
				if gctx.Err() != nil {
					return nil // all was measured
				}
				if err != nil {
					return err
				}
				if m, ok := m.(*goredis.Message); ok {
					select {
					case arrived <- t8Heard{m.Payload, time.Now()}:
					case <-gctx.Done():
						return nil
					}
				}
			}
		})
	}
	if err := harness.Eventually(gctx, "all are subscribed on the spoke", func() error {
		subscribed, err := publisher.PubSubNumSub(gctx, there...).Result()
		for channel, n := range subscribed {
			if n != 1 {
				err = errors.Join(err, fmt.Errorf("%d are to %s", n, channel))
			}
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	// hear publishes to some of the channels and waits for as many messages.
	hear := func(payload string, to ...string) (took []time.Duration, err error) {
		if err := idle(gctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
		sent := time.Now()
		if _, err := publisher.Pipelined(gctx, func(p goredis.Pipeliner) error {
			for _, channel := range to {
				p.Publish(gctx, channel, payload)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for len(took) < len(to) {
			select {
			case m := <-arrived:
				if m.payload == payload { // else it says that something may have been missed before
					took = append(took, m.at.Sub(sent))
				}
			case <-gctx.Done():
				return nil, fmt.Errorf("%d of %d messages came: %w", len(took), len(to), context.Cause(gctx))
			}
		}
		return took, nil
	}
	for i := range messages {
		took, err := hear(fmt.Sprint("message ", i), there[i%len(there)])
		if err != nil {
			return nil, nil, err
		}
		single = append(single, took...)
	}
	for i := range rounds {
		took, err := hear(fmt.Sprint("round ", i), there...)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, took...)
	}
	return single, all, nil
}
