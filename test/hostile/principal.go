//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// principal has the identity of the agents' principal, and attacks whoever connects.
type principal struct {
	opts   options
	source *workloadapi.X509Source
	done   *tally
	packer packer

	connections atomic.Int64 // of the sync service
	tunnels     atomic.Int64
	bombs       atomic.Int64
	bombsOfWire [][]byte
}

// run attacks until ctx is done.
func (p *principal) run(ctx context.Context) (err error) {
	if p.packer, err = newPacker(); err != nil {
		return err
	}
	p.bombsOfWire = wireBombs(p.packer.pack)
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

// toAgent is an attack on an agent.
type toAgent struct {
	name string
	mode stream.Mode // zero: both
	// opening says that it begins without a welcome.
	opening bool
	run     func(*line) error
}

// connection attacks an agent with what is next for all of them. Then it tells the agent to
// connect anew.
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
	attacks := slices.DeleteFunc(p.attacks(), func(a toAgent) bool {
		return a.mode != 0 && a.mode != mode || len(p.opts.only) > 0 && !slices.Contains(p.opts.only, a.name)
	})
	if len(attacks) == 0 {
		<-s.Context().Done()
		return nil
	}
	attack := attacks[int(p.connections.Add(1)-1)%len(attacks)]
	ctx, cancel := context.WithTimeout(s.Context(), turn)
	defer cancel()
	l := p.line(ctx, s, attack.name)
	ended := p.done.begun(attack.name)
	if !attack.opening {
		if err = l.send(stream.WelcomeFrame(stream.Welcome{
			Protocol: stream.Protocol, Agent: name, HubUID: "hostile", Connection: word(), Children: true,
		})); err == nil {
			err = l.send(stream.FrameOf(emptyHanded(mode)))
		}
	}
	if err == nil {
		err = attack.run(l)
	}
	ended(err)
	if ctx.Err() != nil && s.Context().Err() == nil {
		_ = l.send(stream.FrameOf(stream.Goodbye{Reason: stream.GoodbyeDrain})) // else it comes later
	}
	return nil
}

// line is the stream of a caller. What is said is compressed if the caller can read that.
func (p *principal) line(ctx context.Context, s grpc.ServerStream, attack string) *line {
	l := &line{ctx: ctx, stream: s, attack: attack, done: p.done, orders: newOrders()}
	if grpc.SetSendCompressor(s.Context(), coding) == nil {
		l.pack = p.packer.pack
	}
	return l
}

// attacks are those on an agent's stream of the sync service.
func (p *principal) attacks() []toAgent {
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
	all := []toAgent{
		{"rewrites of large objects", stream.Managed, false, rewrites("large-", stream.Applications, 8, large)},
		{"rewrites of small objects", stream.Managed, false, rewrites("small-", stream.Applications, 512, small)},
		{"projects", stream.Managed, false, rewrites("project-", stream.AppProjects, 64, 60<<10)},
		{"new objects", stream.Managed, false, func(l *line) error {
			return l.mannered(256, func(_, v int) stream.Event {
				return apply(fmt.Sprint("n.", v), stream.Applications, "new-"+word(), word(), body(v, 1<<10))
			})
		}},
		{"objects that come and go", stream.Managed, false, func(l *line) error {
			return l.mannered(64, func(i, v int) stream.Event {
				name, id := fmt.Sprint("moth-", i), fmt.Sprint("m.", v)
				if v/64%2 == 0 {
					return apply(id, stream.Applications, name, word(), body(v, small))
				}
				return remove(id, stream.Applications, name)
			})
		}},
		{"repositories", stream.Managed, false, func(l *line) error {
			return l.mannered(64, func(_, v int) stream.Event {
				return apply(fmt.Sprint("r.", v), stream.Repositories, "repo-"+word(), word(), fmt.Appendf(nil,
					`{"annotations":{},"data":{"password":"%s","url":"aHR0cHM6Ly9naXQuZXhhbXBsZS5jb20vci5naXQ="},"labels":{"argocd.argoproj.io/secret-type":"repository"}}`, strings.Repeat("YWFh", 10<<10)))
			})
		}},
		{"trust", stream.Managed, false, func(l *line) error {
			return l.mannered(3, func(i, v int) stream.Event {
				name := []string{"argocd-gpg-keys-cm", "argocd-tls-certs-cm", "argocd-ssh-known-hosts-cm"}[i]
				return apply(fmt.Sprint("k.", v), stream.Trust, name, "u", fmt.Appendf(nil, `{"data":{"k%d":"%s"}}`, v, strings.Repeat("a", 100<<10)))
			})
		}},
		{"refreshes", 0, false, command(func(v int) string {
			return fmt.Sprintf(`{"refresh":{"id":"%d","type":"hard"},"hydrate":{"id":"%d","type":"normal"}}`, v, v)
		})},
		{"operations", 0, false, command(func(v int) string {
			return fmt.Sprintf(`{"command":"%d","operation":{"info":[{"name":"argomesh.io/command","value":"%d"}],"sync":{"prune":true,"revision":"%d",`+
				`"manifests":["{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRoleBinding\"}"]}}}`, v, v, v)
		})},
		{"digests", 0, false, again(func(i int) stream.Message { return towardsAgent(i) })},
		{"histories", 0, false, again(func(i int) stream.Message {
			return stream.History{ID: "h", Token: word(), Revision: uint64(i)} //nolint:gosec // positive
		})},
		{"new histories", 0, false, again(func(int) stream.Message { return stream.History{ID: word(), Token: word(), Revision: 1} })},
		{"results", 0, false, again(func(i int) stream.Message { return stream.Applied{Results: strangeResults(stream.Statuses, i)} })},
		{"inventories", 0, false, func(l *line) error { return inventories(l, towardsAgent(1)) }},
		{"buckets", stream.Managed, false, func(l *line) error { return buckets(l, stream.Applications) }},
		{"contents that are bombs", stream.Managed, false, func(l *line) error { return l.mannered(2, bomb(stream.Applications)) }},
		{"commands that are bombs", 0, false, func(l *line) error { return l.mannered(2, bomb(stream.Commands)) }},
		{"frames that nobody knows", 0, false, func(l *line) error { return l.both(func() error { return l.sendBytes(unknownFrame) }, nil) }},
		{"events without reading", stream.Managed, false, func(l *line) error {
			for v := 0; l.ctx.Err() == nil; v++ {
				if err := l.batch(apply(fmt.Sprint("d.", v), stream.Applications, fmt.Sprint("deaf-", v%64), "u", body(v, 4<<10))); err != nil {
					return err
				}
			}
			return l.ctx.Err()
		}},
		{"no welcome", 0, true, func(l *line) error { return l.both(nil, nil) }},
		{"connections", 0, false, func(*line) error { return nil }},
		{"bombs", 0, true, func(l *line) error {
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

// tunnel takes the streams for live access as soon as an agent offers them, and uses them
// in one of many ways.
func (p *principal) tunnel(s grpc.ServerStream) error {
	var first []byte
	if err := s.RecvMsg(&first); err != nil {
		return err
	}
	c := &streampb.Chunk{}
	if err := proto.Unmarshal(first, c); err != nil {
		return err
	}
	ways := p.tunnelAttacks()
	way := ways[int(p.tunnels.Add(1)-1)%len(ways)]
	if len(p.opts.only) > 0 && !slices.Contains(p.opts.only, way.name) {
		<-s.Context().Done()
		return nil
	}
	ended := p.done.begun(way.name)
	ctx, cancel := context.WithTimeout(s.Context(), turn)
	defer cancel()
	l := p.line(ctx, s, way.name)
	err := l.send(&streampb.Chunk{Body: &streampb.Chunk_Hello{Hello: &streampb.TunnelHello{Protocol: 1, Agent: c.GetHello().GetAgent(), Connection: word()}}})
	if err == nil {
		err = way.run(l)
	}
	ended(err)
	return nil
}

func (p *principal) tunnelAttacks() []toAgent {
	open := func(l *line, service string) error {
		return l.send(&streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: service, Waiting: 1 << 31}}})
	}
	data := func(b []byte) *streampb.Chunk { return &streampb.Chunk{Body: &streampb.Chunk_Data{Data: b}} }
	flood := func(service string, b []byte) func(*line) error {
		return func(l *line) error {
			if err := open(l, service); err != nil {
				return err
			}
			return l.read(func() error { return l.send(data(b)) })
		}
	}
	// Within its window, and without reading what comes.
	deaf := func(service string, request string) func(*line) error {
		return func(l *line) error {
			if err := open(l, service); err != nil {
				return err
			}
			for _, b := range slices.Collect(slices.Chunk(bytes.Repeat([]byte(request), max(200<<10/len(request), 1)), 32<<10)) {
				if err := l.send(data(b)); err != nil {
					return err
				}
			}
			<-l.ctx.Done()
			return l.ctx.Err()
		}
	}
	list := "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"
	return []toAgent{
		{name: "tunnel: opened and left", run: func(l *line) error {
			if err := open(l, "kubernetes"); err != nil {
				return err
			}
			<-l.ctx.Done()
			return l.ctx.Err()
		}},
		{name: "tunnel: requests that nobody reads", run: deaf("kubernetes", list)},
		{name: "tunnel: commands that nobody reads", run: deaf("redis", "*2\r\n$3\r\nGET\r\n$40\r\napp|resources-tree|argocd_shop-0|1.8.3.gz\r\n")},
		{name: "tunnel: more than its window", run: flood("kubernetes", make([]byte, 32<<10))},
		{name: "tunnel: endless headers", run: flood("kubernetes", []byte("GET / HTTP/1.1\r\n"+strings.Repeat("X-A: b\r\n", 3000)))},
		{name: "tunnel: endless command", run: flood("redis", bytes.Repeat([]byte("*1000000\r\n"), 3000))},
		{name: "tunnel: a service that there is not", run: func(l *line) error { return open(l, strings.Repeat("s", 4<<10)) }},
		{name: "tunnel: chunks out of order", run: func(l *line) error {
			return l.read(func() error {
				return errors.Join(l.send(&streampb.Chunk{Body: &streampb.Chunk_Credit{Credit: 1<<32 - 1}}), l.send(data(nil)))
			})
		}},
		{name: "tunnel: bombs", run: func(l *line) error {
			for _, b := range p.bombsOfWire {
				if err := l.sendPacked(b); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// read calls say until the stream or the turn ends, and reads all that comes.
func (l *line) read(say func() error) error {
	go func() {
		var b []byte
		for l.stream.RecvMsg(&b) == nil {
			l.done.answered(l.attack)
		}
	}()
	for l.ctx.Err() == nil {
		if err := say(); err != nil {
			return err
		}
	}
	return l.ctx.Err()
}
