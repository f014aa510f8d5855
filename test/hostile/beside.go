//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

const (
	// atOnce is how many streams of a connection an attack uses.
	atOnce = 64
	// hold is how long an attack keeps what it has taken before the next one begins.
	hold = 5 * time.Second
)

// besides are the attacks of an agent that take no part in its one stream.
func (a *agent) besides() []beside {
	all := []beside{
		{"bombs", a.bombs},
		{"half messages", a.halfMessages},
		{"calls that say nothing", a.mute},
		{"resets", a.resets},
		{"hellos that a terminal obeys", a.hellos},
		{"silent connections", a.silence},
		{"tunnels that are never read", a.tunnels},
		{"tunnels out of order", a.tunnelNoise},
	}
	if a.opts.byToken != "" {
		all = append(all, beside{"proofs", a.proofs})
	}
	if a.opts.stranger != "" {
		all = append(all, beside{"strangers", a.strangers})
	}
	return all
}

// wireBombs are messages that are some hundred bytes once compressed: each repeated field
// of a frame, as often as a message of that size has room for, and what is no message.
func wireBombs(pack func([]byte) []byte) [][]byte {
	var out [][]byte
	for _, size := range []int{stream.MaxSmallBytes, stream.MaxFrameBytes, 2 * stream.MaxFrameBytes} {
		for _, path := range [][]protowire.Number{
			{1, 3},           // hello.capabilities
			{2, 3},           // welcome.capabilities
			{3, 1},           // digests
			{5, 3},           // inventory.entries
			{6, 1},           // batch.events
			{6, 2},           // batch.absences
			{7, 1},           // applied.results
			{9, 1},           // heartbeat.digests
			{9, 2},           // heartbeat.absences
			{6, 1, 5},        // attributes of one event
			{7, 1, 7},        // dropped of one result
			{99}, {6, 1, 99}, // what no one knows
		} {
			one := protowire.AppendBytes(protowire.AppendTag(nil, path[len(path)-1], protowire.BytesType), nil)
			b := bytes.Repeat(one, (size-32)/len(one))
			for i := len(path) - 2; i >= 0; i-- {
				b = protowire.AppendBytes(protowire.AppendTag(nil, path[i], protowire.BytesType), b)
			}
			out = append(out, pack(b))
		}
		out = append(out, pack(make([]byte, size)))
	}
	return append(out, pack(make([]byte, 64<<20)))
}

// bombs are first messages, on as many streams at once as there may be.
func (a *agent) bombs(ctx context.Context) error {
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the attack is over
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, method := range []string{connectMethod, serveMethod} {
		for _, bomb := range a.bombsOfWire {
			g.Go(func() error {
				s, err := call(ctx, cc, method, true)
				if err != nil {
					return nil //nolint:nilerr // the others go on
				}
				l := a.line(ctx, s, "bombs")
				if err := l.sendPacked(bomb); err == nil {
					_, _ = l.hear() // it is refused
				}
				return nil
			})
		}
	}
	return g.Wait()
}

func (a *agent) line(ctx context.Context, s grpc.ClientStream, attack string) *line {
	return &line{ctx: ctx, stream: s, attack: attack, done: a.done, pack: a.packer.pack, orders: newOrders()}
}

// halfMessages announces the longest message on each stream of a connection, and sends all
// of it but the end.
func (a *agent) halfMessages(ctx context.Context) error {
	config := tlsconfig.MTLSClientConfig(a.source, a.source, tlsconfig.AuthorizeAny())
	t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer t.CloseIdleConnections()
	var g errgroup.Group
	for i := range atOnce {
		g.Go(func() error {
			method := []string{connectMethod, serveMethod}[i%2]
			r, w := io.Pipe()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.opts.principal+method, r)
			if err != nil {
				return err
			}
			req.Header = http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}}
			go func() {
				size := []int{stream.MaxSmallBytes, stream.MaxFrameBytes}[i/2%2]
				begin := binary.BigEndian.AppendUint32([]byte{0}, uint32(size)) //nolint:gosec // small
				if _, err := w.Write(append(begin, make([]byte, size-1)...)); err == nil {
					a.done.sent("half messages", size)
				}
				<-ctx.Done() // the last byte never comes
				_ = w.Close()
			}()
			resp, err := t.RoundTrip(req)
			if err != nil {
				return nil //nolint:nilerr // refused, or over
			}
			<-ctx.Done()
			return resp.Body.Close()
		})
	}
	return g.Wait()
}

// mute opens calls on connection after connection, and says nothing in any.
func (a *agent) mute(ctx context.Context) error {
	var all []*grpc.ClientConn
	defer func() {
		for _, cc := range all {
			_ = cc.Close()
		}
	}()
	for i := range 8 {
		cc, err := a.dial(a.opts.principal, a.source)
		if err != nil {
			return err
		}
		all = append(all, cc)
		for n := 0; n < 4*atOnce && a.muteCall(ctx, cc, []string{connectMethod, serveMethod}[(i+n)%2]); n++ {
			a.done.sent("calls that say nothing", 1)
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// muteCall opens a call, and reports whether there was room for it on its connection.
func (a *agent) muteCall(ctx context.Context, cc *grpc.ClientConn, method string) bool {
	one, end := context.WithCancel(ctx)
	full := time.AfterFunc(hold/100, end) // it would wait for room
	_, err := call(one, cc, method, false)
	if !full.Stop() || err != nil {
		end()
		return false
	}
	context.AfterFunc(ctx, end)
	return true
}

// resets begins streams and ends them at once.
func (a *agent) resets(ctx context.Context) error {
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the attack is over
	for ctx.Err() == nil {
		one, end := context.WithCancel(ctx)
		s, err := call(one, cc, connectMethod, false)
		if err == nil {
			if err = s.SendMsg([]byte{0xff}); err == nil {
				a.done.sent("resets", 1)
			}
		}
		end()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// hellos says what a person would see who asks which cluster it is.
func (a *agent) hellos(ctx context.Context) error {
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the attack is over
	for ctx.Err() == nil {
		s, err := call(ctx, cc, connectMethod, true)
		if err != nil {
			continue // refused as well
		}
		l := a.line(ctx, s, "hellos that a terminal obeys")
		if err := l.send(a.hello("\x1b[2K\rALL IS WELL\x1b]0;pwned\a")); err == nil {
			_, _ = l.hear() // it is refused
		}
	}
	return ctx.Err()
}

// silence opens connections: some say nothing, some end in the middle of TLS, and some say
// nothing once they have proven who they are.
func (a *agent) silence(ctx context.Context) error {
	config := tlsconfig.MTLSClientConfig(a.source, a.source, tlsconfig.AuthorizeAny())
	config.NextProtos = []string{"h2"}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	var dialer net.Dialer
	for i := range 3 * atOnce {
		c, err := dialer.DialContext(ctx, "tcp", a.opts.principal)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		switch i % 3 {
		case 1:
			_, err = c.Write([]byte{22, 3, 1, 255, 255, 1})
		case 2:
			secure := tls.Client(c, config)
			if err = secure.HandshakeContext(ctx); err == nil {
				_, err = io.WriteString(secure, http2.ClientPreface)
			}
		}
		if err == nil {
			a.done.sent("silent connections", 1)
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// tunnelHello is what a stream for live access begins with.
func (a *agent) tunnelHello(nonce []byte) *streampb.Chunk {
	return &streampb.Chunk{Body: &streampb.Chunk_Hello{Hello: &streampb.TunnelHello{Protocol: 1, Agent: a.name.String(), Nonce: nonce}}}
}

// tunnels opens as many streams for live access as it gets, says nothing more than it must,
// and reads nothing of any.
func (a *agent) tunnels(ctx context.Context) error {
	const attack = "tunnels that are never read"
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the attack is over
	hello, err := bytesOf(a.tunnelHello(nil))
	if err != nil {
		return err
	}
	for range 4 * atOnce {
		s, err := call(ctx, cc, serveMethod, false)
		if err != nil {
			return err
		}
		if err := s.SendMsg(hello); err == nil {
			a.done.sent(attack, len(hello))
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// tunnelNoise says in a tunnel what has no place there.
func (a *agent) tunnelNoise(ctx context.Context) error {
	const attack = "tunnels out of order"
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the attack is over
	hello := a.tunnelHello(nil)
	for _, noise := range []*streampb.Chunk{
		hello,
		{Body: &streampb.Chunk_Opened{Opened: &streampb.TunnelOpened{}}},
		{Body: &streampb.Chunk_Data{Data: make([]byte, 32<<10)}},
		{Body: &streampb.Chunk_Data{Data: make([]byte, 60<<10)}},
		{Body: &streampb.Chunk_Credit{Credit: 1<<32 - 1}},
		{Body: &streampb.Chunk_Fin{Fin: &streampb.TunnelFin{}}},
		{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: "redis", Waiting: 1 << 31}}},
		{Body: &streampb.Chunk_Heartbeat{Heartbeat: &streampb.TunnelHeartbeat{}}},
		{},
	} {
		over, cancel := context.WithTimeout(ctx, time.Second)
		err := a.say(over, cc, attack, hello, noise)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// say says one thing in a tunnel, and then the other again and again until it ends.
func (a *agent) say(ctx context.Context, cc *grpc.ClientConn, attack string, first, again *streampb.Chunk) error {
	s, err := call(ctx, cc, serveMethod, false)
	if err != nil {
		return nil //nolint:nilerr // there are no more at the moment
	}
	b, err := bytesOf(first)
	if err != nil {
		return err
	}
	noise, err := bytesOf(again)
	if err != nil {
		return err
	}
	for s.SendMsg(b) == nil {
		a.done.sent(attack, len(b))
		b = noise
	}
	return nil
}

// proofs asks the principal to prove itself, on ever new streams.
func (a *agent) proofs(ctx context.Context) error {
	svid, err := workloadapi.FetchJWTSVID(ctx, jwtsvid.Params{Audience: principalOf(a.source)}, workloadapi.WithAddr(a.opts.socket))
	if err != nil {
		return err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+svid.Marshal())
	for ctx.Err() == nil {
		cc, err := grpc.NewClient("passthrough:///"+a.opts.byToken, grpc.WithTransportCredentials(credentials.NewTLS(anonymous())))
		if err != nil {
			return err
		}
		for range atOnce / 4 {
			s, err := call(ctx, cc, serveMethod, false)
			if err != nil {
				break
			}
			nonce := []byte(word() + word())
			b, err := bytesOf(a.tunnelHello(nonce))
			if err != nil {
				return err
			}
			if s.SendMsg(b) == nil {
				a.done.sent("proofs", len(b))
			}
		}
		_ = cc.Close()
	}
	return ctx.Err()
}

// principalOf is the SPIFFE ID of the principal of these tests in the agent's trust domain.
func principalOf(s *workloadapi.X509Source) string {
	svid, err := s.GetX509SVID()
	if err != nil {
		return ""
	}
	return "spiffe://" + svid.ID.TrustDomain().Name() + "/argomesh/principal"
}

// strangers calls as someone who is not registered, again as soon as it is refused.
func (a *agent) strangers(ctx context.Context) error {
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(a.opts.stranger)))
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // the attack is over
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			for ctx.Err() == nil {
				cc, err := a.dial(a.opts.principal, source)
				if err != nil {
					return err
				}
				_, err = a.connect(ctx, cc, "strangers")
				if err == nil {
					return fmt.Errorf("a stranger was admitted by %s", a.opts.principal)
				}
				_ = cc.Close()
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}
