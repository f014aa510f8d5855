//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// principal has the identity of the agents' principal, and attacks anyone who connects.
type principal struct {
	opts   options
	source *workloadapi.X509Source
	done   *tally
	packer packer

	attacks     map[stream.Mode]*round
	tunnels     *round
	bombs       atomic.Int64
	bombsOfWire [][]byte
}

// round is attacks that take turns. It may be used concurrently.
type round struct {
	all []toAgent

	mu   sync.Mutex // guards next
	next int
}

// take returns the next one; false where there is none, or it needs a connection of its own and
// this one is not fresh.
func (r *round) take(fresh bool) (toAgent, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return toAgent{}, false
	}
	next := r.all[r.next%len(r.all)]
	if next.needs != open && !fresh {
		return toAgent{}, false
	}
	r.next++
	return next, true
}

// wanted is a round of those that are asked for, which are expected from then on.
func (p *principal) wanted(all []toAgent) *round {
	r := &round{}
	for _, a := range all {
		if len(p.opts.only) == 0 || slices.Contains(p.opts.only, a.name) {
			r.all = append(r.all, a)
			p.done.expect(a.name)
		}
	}
	return r
}

// run attacks until ctx is done.
func (p *principal) run(ctx context.Context) (err error) {
	if p.packer, err = newPacker(); err != nil {
		return err
	}
	p.bombsOfWire = wireBombs(p.packer.pack)
	p.tunnels = p.wanted(p.tunnelAttacks())
	p.attacks = map[stream.Mode]*round{}
	onStream := p.onStream()
	modes := []stream.Mode{stream.Managed, stream.Autonomous}
	if p.opts.mode != "" {
		mode, err := stream.ParseMode(p.opts.mode)
		if err != nil {
			return err
		}
		modes = []stream.Mode{mode}
	}
	for _, mode := range modes {
		p.attacks[mode] = p.wanted(slices.DeleteFunc(slices.Clone(onStream), func(a toAgent) bool { return a.mode != 0 && a.mode != mode }))
	}
	p.done.complete()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(tlsconfig.MTLSServerConfig(p.source, p.source, tlsconfig.AuthorizeAny()))),
		grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(256<<20),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			if method, _ := grpc.MethodFromServerStream(s); method == serveMethod {
				return p.tunnel(s)
			}
			return p.connection(s)
		}),
	)
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", p.opts.listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(l)
}

// need is what an attack needs of the connection.
type need int

// Needs.
const (
	open need = iota // any that has a welcome
	// opening is one of its own, without a welcome.
	opening
	// alone is one of its own, after a welcome: what others have sent there is in its way, and what
	// it sends in the way of those to come.
	alone
)

// toAgent is an attack on an agent.
type toAgent struct {
	name  string
	mode  stream.Mode // zero: both
	needs need
	run   func(*line) error
}

// connection attacks an agent with what is next for those of its mode, until that ends the
// connection, or the next attack needs a new one: then it tells the agent to reconnect.
func (p *principal) connection(s grpc.ServerStream) error {
	var first []byte
	if err := s.RecvMsg(&first); err != nil {
		return err
	}
	f, err := frameOf(first)
	if err != nil {
		return err
	}
	mode, err := stream.ParseMode(f.GetHello().GetMode())
	if err != nil {
		return err
	}
	name, err := identity.ParseAgentName(f.GetHello().GetAgent())
	if err != nil {
		return err
	}
	of := p.attacks[mode]
	if of == nil || len(of.all) == 0 {
		<-s.Context().Done()
		return nil
	}
	all, l := newRelay(s.Context(), s), p.line(s.Context(), s, "")
	l.stream = all.during(s.Context())
	welcomed := false
	for attack, is := of.take(true); is; attack, is = of.take(false) {
		if attack.needs != opening && !welcomed {
			if err := p.welcome(l, name, mode); err != nil {
				return err
			}
			welcomed = true
		}
		if !p.attack(attack, all, *l) {
			return nil
		}
		if attack.needs != open {
			break
		}
	}
	_ = l.prepare(stream.FrameOf(stream.Goodbye{Reason: stream.GoodbyeDrain})) // else it comes later
	return nil
}

// welcome admits an agent, and has it tell all that it has.
func (p *principal) welcome(l *line, name identity.AgentName, mode stream.Mode) error {
	if err := l.prepare(stream.WelcomeFrame(stream.Welcome{
		Protocol: stream.Protocol, Agent: name, HubUID: "hostile", Connection: word(), Children: true,
	})); err != nil {
		return err
	}
	return l.prepare(stream.FrameOf(emptyHanded(mode)))
}

// attack gives an attack its turn on an agent's stream, and reports whether that goes on.
func (p *principal) attack(attack toAgent, all *relay, l line) bool {
	agent := l.ctx
	ctx, cancel := context.WithTimeout(agent, turn)
	defer cancel()
	l.ctx, l.stream, l.attack = ctx, all.during(ctx), attack.name
	ended := p.done.begun(attack.name)
	err := attack.run(&l)
	ended(err)
	return ctx.Err() != nil && agent.Err() == nil
}

// line is the stream of a caller. What is said is compressed if the caller can read that.
func (p *principal) line(ctx context.Context, s grpc.ServerStream, attack string) *line {
	l := &line{ctx: ctx, stream: s, attack: attack, done: p.done, orders: newOrders()}
	if grpc.SetSendCompressor(s.Context(), coding) == nil {
		l.pack = p.packer.pack
	}
	return l
}

// onStream are attacks on an agent's stream of the sync service.
func (p *principal) onStream() []toAgent {
	rewrites := func(prefix string, c stream.Collection, n, size int) func(*line) error {
		return func(l *line) error {
			if err := l.batch(apply("open", stream.AppProjects, "open", "p", projectBody(0, 0))); err != nil {
				return err
			}
			return l.mannered(n, func(i, v int) stream.Event {
				data := body(v, size)
				if c == stream.AppProjects {
					data = projectBody(v, size)
				}
				return apply(fmt.Sprint(prefix, v), c, fmt.Sprint(prefix, i), "u", data)
			})
		}
	}
	command := func(content func(v int) string) func(*line) error {
		return func(l *line) error {
			return l.mannered(4, func(i, v int) stream.Event {
				name, uid := "small-0", "u"
				if names, versions := l.orders.all(); len(names) > 0 { // what the agent told of
					name, uid = names[i%len(names)], versions[i%len(names)].SourceUID
				}
				return apply(fmt.Sprint("c.", v), stream.Commands, name, uid, []byte(content(v)))
			})
		}
	}
	again := func(m func(i int) stream.Message) func(*line) error {
		return func(l *line) error {
			i := 0
			return l.both(func() error { i++; return l.send(stream.FrameOf(m(i))) }, nil)
		}
	}
	contents := slices.Collect(maps.Values(bombs())) // they take longer than a turn
	all := []toAgent{
		{"rewrites of large objects", stream.Managed, open, rewrites("large-", stream.Applications, 8, large)},
		{"rewrites of small objects", stream.Managed, open, rewrites("small-", stream.Applications, 512, small)},
		{"projects", stream.Managed, open, rewrites("project-", stream.AppProjects, 64, 60<<10)},
		{"projects with dear patterns", stream.Managed, open, func(l *line) error {
			return l.mannered(16, func(i, v int) stream.Event {
				return apply(fmt.Sprint("d.", v), stream.AppProjects, fmt.Sprint("project-", i), "u", dear(v))
			})
		}},
		{"objects that are refused", stream.Managed, open, func(l *line) error {
			return l.mannered(64, func(i, v int) stream.Event {
				return apply(fmt.Sprint("f.", v), stream.Applications, fmt.Sprint("refused-", i), "u", refused(v, 64<<10))
			})
		}},
		{"new objects", stream.Managed, open, func(l *line) error {
			return l.mannered(256, func(_, v int) stream.Event {
				return apply(fmt.Sprint("n.", v), stream.Applications, "new-"+word(), word(), body(v, 1<<10))
			})
		}},
		{"objects that come and go", stream.Managed, open, func(l *line) error {
			return l.mannered(64, func(i, v int) stream.Event {
				name, id := fmt.Sprint("moth-", i), fmt.Sprint("m.", v)
				if v/64%2 == 0 {
					return apply(id, stream.Applications, name, word(), body(v, small))
				}
				return remove(id, stream.Applications, name)
			})
		}},
		{"repositories", stream.Managed, open, func(l *line) error {
			return l.mannered(64, func(_, v int) stream.Event {
				return apply(fmt.Sprint("r.", v), stream.Repositories, "repo-"+word(), word(), fmt.Appendf(nil,
					`{"annotations":{},"data":{"password":"%s","url":"aHR0cHM6Ly9naXQuZXhhbXBsZS5jb20vci5naXQ="},"labels":{"argocd.argoproj.io/secret-type":"repository"}}`, strings.Repeat("YWFh", 10<<10)))
			})
		}},
		{"trust", stream.Managed, open, func(l *line) error {
			return l.mannered(3, func(i, v int) stream.Event {
				name := []string{"argocd-gpg-keys-cm", "argocd-tls-certs-cm", "argocd-ssh-known-hosts-cm"}[i]
				return apply(fmt.Sprint("k.", v), stream.Trust, name, "u", fmt.Appendf(nil, `{"data":{"k%d":"%s"}}`, v, strings.Repeat("a", 100<<10)))
			})
		}},
		{"refreshes", 0, open, command(func(v int) string {
			return fmt.Sprintf(`{"refresh":{"id":"%d","type":"hard"},"hydrate":{"id":"%d","type":"normal"}}`, v, v)
		})},
		{"operations", 0, open, command(func(v int) string {
			return fmt.Sprintf(`{"command":"%d","operation":{"info":[{"name":"argomesh.io/command","value":"%d"}],"sync":{"prune":true,"revision":"%d",`+
				`"manifests":["{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRoleBinding\"}"]}}}`, v, v, v)
		})},
		{"digests", 0, open, again(func(i int) stream.Message { return towardsAgent(i) })},
		{"histories", 0, open, again(func(i int) stream.Message {
			return stream.History{ID: "h", Token: word(), Revision: uint64(i)} //nolint:gosec // positive
		})},
		{"new histories", 0, open, again(func(int) stream.Message { return stream.History{ID: word(), Token: word(), Revision: 1} })},
		{"results", 0, open, again(func(i int) stream.Message { return stream.Applied{Results: strangeResults(stream.Statuses, i)} })},
		{"inventories", 0, open, func(l *line) error { return inventories(l, towardsAgent(1)) }},
		{"buckets", stream.Managed, open, func(l *line) error { return buckets(l, stream.Applications) }},
		{"contents that are bombs", stream.Managed, open, func(l *line) error { return l.mannered(2, bomb(stream.Applications, contents)) }},
		{"commands that are bombs", 0, open, func(l *line) error { return l.mannered(2, bomb(stream.Commands, contents)) }},
		{"frames that nobody knows", 0, open, func(l *line) error { return l.both(func() error { return l.sendBytes(unknownFrame) }, nil) }},
		{"events without reading", stream.Managed, alone, func(l *line) error {
			for v := 0; l.ctx.Err() == nil; v++ {
				if err := l.batch(apply(fmt.Sprint("d.", v), stream.Applications, fmt.Sprint("deaf-", v%64), "u", body(v, 4<<10))); err != nil {
					return err
				}
			}
			return l.ctx.Err()
		}},
		{"no welcome", 0, opening, func(l *line) error {
			l.done.sent(l.attack, 0) // by saying nothing
			return l.both(nil, nil)
		}},
		{"connections", 0, open, func(l *line) error {
			l.done.sent(l.attack, 0) // by ending it
			return nil
		}},
		{"bombs", 0, opening, func(l *line) error {
			if l.pack == nil {
				return errors.New("the agent takes nothing compressed")
			}
			if err := l.sendPacked(p.bombsOfWire[int(p.bombs.Add(1)-1)%len(p.bombsOfWire)]); err != nil {
				return err
			}
			return l.both(nil, nil)
		}},
	}
	return all
}

// emptyHanded says that the hub holds nothing, so that an agent tells all that it has.
func emptyHanded(mode stream.Mode) stream.Digests {
	var d []stream.Digest
	for _, c := range stream.Collections() {
		if c.Source(mode) == stream.Spoke {
			d = append(d, stream.Digest{Collection: c})
		}
	}
	return stream.Digests{Digests: d}
}

func towardsAgent(i int) stream.Digests {
	return stream.Digests{Digests: []stream.Digest{{Collection: stream.Statuses, Root: stream.Sum{byte(i), byte(i >> 8)}, Entries: uint64(i)}}} //nolint:gosec // positive
}
