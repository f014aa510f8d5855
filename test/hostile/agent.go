//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

const (
	// turn is how long an attack has the stream of the agent.
	turn = time.Second
	// welcome is how long it waits for that.
	welcome = 10 * time.Second
)

// agent is a registered agent that attacks its principal.
type agent struct {
	opts   options
	source *workloadapi.X509Source
	done   *tally
	name   identity.AgentName
	mode   stream.Mode

	packer  packer
	orders  *orders
	process string // of hello
	turns   atomic.Uint64

	bombsOfWire [][]byte
}

// onStream is an attack on the one stream that an agent may have.
type onStream struct {
	name string
	mode stream.Mode // zero: both
	run  func(*line) error
}

// beside is an attack that goes on beside those on the stream, one after the other.
type beside struct {
	name string
	run  func(context.Context) error // one round, until it is done or hold is over
}

// run attacks until ctx is done.
func (a *agent) run(ctx context.Context) (err error) {
	if a.packer, err = newPacker(); err != nil {
		return err
	}
	a.orders, a.process, a.bombsOfWire = newOrders(), word(), wireBombs(a.packer.pack)
	turns := slices.DeleteFunc(a.onStream(), func(o onStream) bool {
		return o.mode != 0 && o.mode != a.mode || !a.wanted(o.name)
	})
	for _, attack := range turns {
		a.done.expect(attack.name)
	}
	services := map[string]*answers{"kubernetes": {ways: a.wantedOf(callAnswers())}, "redis": {ways: a.wantedOf(valueAnswers(a.shown()))}}
	for _, s := range services {
		for _, way := range s.ways {
			a.done.expect(way.name)
		}
	}
	besides := slices.DeleteFunc(a.besides(), func(b beside) bool { return !a.wanted(b.name) })
	for _, b := range besides {
		a.done.expect(b.name)
	}
	a.done.complete()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.takeTurns(ctx, turns) })
	g.Go(func() error { return a.answerAll(ctx, services) })
	g.Go(func() error {
		for i := 0; ctx.Err() == nil && len(besides) > 0; i++ {
			b := besides[i%len(besides)]
			round, cancel := context.WithTimeout(ctx, hold)
			ended := a.done.begun(b.name)
			ended(b.run(round))
			cancel()
		}
		return nil
	})
	return g.Wait()
}

func (a *agent) wanted(name string) bool {
	return len(a.opts.only) == 0 || slices.Contains(a.opts.only, name)
}

// takeTurns gives each attack on the stream its time, one after the other, with the first
// of them, which fills an etcd, after each. It reconnects, at once, whenever the
// principal ends it.
func (a *agent) takeTurns(ctx context.Context, attacks []onStream) error {
	if len(attacks) == 0 {
		<-ctx.Done()
		return nil
	}
	cc, err := a.dial(a.opts.principal, a.source)
	if err != nil {
		return err
	}
	defer cc.Close() //nolint:errcheck // the process ends
	for i := 0; ctx.Err() == nil; i++ {
		attack := attacks[0]
		if i%2 == 1 {
			attack = attacks[(i/2+1)%len(attacks)]
		}
		a.take(ctx, cc, attack)
	}
	return nil
}

// take gives an attack its turn, which begins with the principal's welcome.
func (a *agent) take(ctx context.Context, cc *grpc.ClientConn, attack onStream) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.AfterFunc(welcome+turn, cancel)
	defer over.Stop()
	for welcomed := false; ctx.Err() == nil; {
		ended := a.done.begun(attack.name)
		l, err := a.connect(ctx, cc, attack.name)
		if err == nil {
			if !welcomed {
				welcomed = true
				over.Reset(turn)
			}
			err = attack.run(l)
		}
		ended(err)
	}
}

// dial is a connection of its own to the principal.
func (a *agent) dial(address string, source *workloadapi.X509Source) (*grpc.ClientConn, error) {
	creds := credentials.NewTLS(tlsconfig.MTLSClientConfig(source, source, tlsconfig.AuthorizeAny()))
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
}

// anonymous is a TLS configuration without a certificate.
func anonymous() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, InsecureSkipVerify: true} //nolint:gosec // it is the attacker
}

// hello says which cluster it is by a UID.
func (a *agent) hello(uid string) *streampb.Frame {
	return stream.HelloFrame(stream.Hello{
		Protocol: stream.Protocol, Agent: a.name, Mode: a.mode, ClusterUID: uid, Process: a.process, Turn: a.turns.Add(1),
	})
}

// connect opens the agent's stream and returns it after the principal's welcome.
func (a *agent) connect(ctx context.Context, cc *grpc.ClientConn, attack string) (*line, error) {
	s, err := call(ctx, cc, connectMethod, true)
	if err != nil {
		return nil, err
	}
	l := &line{ctx: ctx, stream: s, attack: attack, done: a.done, pack: a.packer.pack, orders: a.orders}
	if err := l.send(a.hello("none")); err != nil {
		_, err = l.hear() // says why
		return nil, err
	}
	f, err := l.hear()
	if err == nil && f.GetWelcome() == nil {
		err = fmt.Errorf("no welcome, but %.40s", f)
	}
	return l, err
}

// word is random.
func word() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
