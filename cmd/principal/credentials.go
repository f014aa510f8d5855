package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/credentials"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/proxies/token"
)

// liveCredentials are the credentials of the resource proxy as main wires them.
type liveCredentials struct {
	// keys sign and check tokens; nil when they are off.
	keys *token.Keys
	// issuer makes out tokens; nil when they are off.
	issuer  *credentials.Issuer
	config  func(context.Context, *v1alpha1.Agent, []byte) (controller.ClusterConfig, error)
	changed func() <-chan struct{}
	run     func(context.Context) error // in every replica
	rotate  func(context.Context) error // under the Lease
}

// newLiveCredentials starts nothing. Off, cluster Secrets are as they are without a
// resource proxy. acknowledged is token.Config.Acknowledged.
func newLiveCredentials(cfg principalconfig.Config, base *start.Base, source *workload.Source, state *hub.State,
	acknowledged func(keyID string) bool) (liveCredentials, error) {
	settings := cfg.ResourceProxy.Credentials
	if !settings.Enabled {
		nothing := func(context.Context) error { return nil }
		return liveCredentials{run: nothing, rotate: nothing}, nil
	}
	client, err := corev1.NewForConfig(base.REST)
	if err != nil {
		return liveCredentials{}, fmt.Errorf("kubernetes client: %w", err)
	}
	keys, err := token.New(token.Config{
		Secrets: client.Secrets(cfg.Namespace), Namespace: cfg.Namespace,
		HubUID: func(ctx context.Context) (string, bool) {
			kept, known := state.Wait(ctx)
			return kept.UID, known
		},
		Acknowledged: acknowledged,
		Life:         settings.TokenLife, KeyLife: settings.KeyLife, Metrics: base.Metrics, Log: base.Log,
	})
	if err != nil {
		return liveCredentials{}, err
	}
	authorities := credentials.Authorities{Read: func() ([]byte, error) { return nil, nil }}
	switch {
	case settings.CAFile != "":
		authorities.Read = func() ([]byte, error) { return credentials.ReadAuthorities(settings.CAFile) }
		if _, err := authorities.Read(); err != nil { // what is mounted is there before us
			return liveCredentials{}, config.Invalid("resource_proxy.credentials.ca_file", "%v: name a readable PEM file", err)
		}
	case settings.CABundle:
		authorities.Read = func() ([]byte, error) { return credentials.OwnBundle(source) }
		authorities.Updated, authorities.Ready = source.Updated, source.WaitReady
	}
	c := credentials.New(keys, settings.TokenLife, authorities, base.Log)
	return liveCredentials{
		keys: keys, issuer: c, config: c.Config, changed: c.Changed, rotate: keys.Rotate,
		run: func(ctx context.Context) error {
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return keys.Run(ctx) })
			g.Go(func() error { return c.Run(ctx) })
			return g.Wait()
		},
	}, nil
}

// unusable returns what a person has to mend of the signing keys, and how; nil while
// nothing is wrong.
func (c liveCredentials) unusable() error {
	if c.keys == nil {
		return nil
	}
	if err := c.keys.Ready(); errors.Is(err, token.ErrUnusable) {
		return fmt.Errorf("%w: restore it, or delete it to begin with new keys, which ends every token; until then only keys that were read before count", err)
	}
	return nil
}
