package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/header"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// openListeners opens all listeners of s, or none.
func openListeners(ctx context.Context, s principalconfig.Stream, source *workload.Source,
	log zerolog.Logger) ([]net.Listener, error) {
	var opened []net.Listener
	listeners, keys := s.All()
	for i, l := range listeners {
		one, err := openListener(ctx, l, "stream."+keys[i], source, log)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		log.Info().Stringer("listener", one.Addr()).Str("method", l.Method).Msg("listening for agents")
		opened = append(opened, one)
	}
	return opened, nil
}

func openListener(ctx context.Context, l principalconfig.Listener, key string, source *workload.Source,
	log zerolog.Logger) (net.Listener, error) {
	method, err := methodOf(l, source, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	opened, err := listen.Open(ctx, key, l.Address())
	if err != nil {
		return nil, err
	}
	served, err := method.On(opened)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return served, nil
}

func methodOf(l principalconfig.Listener, source *workload.Source, log zerolog.Logger) (server.Method, error) {
	switch l.Method {
	case identity.MethodX509:
		return server.Method{Name: l.Method, Credentials: source.ServerCredentials(log),
			Authenticate: workload.PeerFromContext}, nil
	case identity.MethodJWT:
		m := server.Method{
			Name: l.Method, Credentials: source.TokenServerCredentials(log), Authenticate: source.PeerFromToken,
			Renew: source.PeerOfToken, Prove: prover(source),
		}
		if l.Plaintext {
			m.Credentials = insecure.NewCredentials()
		}
		return m, nil
	}
	said, err := header.New(header.Config{TrustedProxies: l.Header.TrustedProxies, MaxAge: l.Header.MaxAge})
	if err != nil {
		return server.Method{}, err
	}
	return server.Method{
		Name: l.Method, Credentials: insecure.NewCredentials(), Authenticate: said.Peer, Prove: prover(source),
		ProveAgain: true, // which certificate the proxy has seen, and until when it counts, only we know
	}, nil
}

// prover is server.Method.Prove.
func prover(source *workload.Source) func(context.Context, spiffeid.ID, stream.Nonce) (string, error) {
	return func(ctx context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error) {
		svid, err := source.FetchToken(ctx, to.String(), nonce.Audience())
		if err != nil {
			return "", err
		}
		return svid.Marshal(), nil
	}
}

func closeAll(listeners []net.Listener) error {
	var problems []error
	for _, l := range listeners {
		problems = append(problems, l.Close())
	}
	return errors.Join(problems...)
}
