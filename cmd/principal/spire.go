package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/argomesh/argomesh/mesh/spire/serverapi"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/mesh/spire"
)

const (
	bundleSuffix = ".json"
	// maxPushed bounds the files of spire.bundles.
	maxPushed = 1000
)

// newBundlePusher starts nothing; nil when there is nothing to push.
func newBundlePusher(cfg principalconfig.SPIRE, source *workload.Source, metrics prometheus.Registerer,
	log zerolog.Logger) (*serverapi.Pusher, error) {
	if cfg.Server == "" {
		return nil, nil //nolint:nilnil // documented
	}
	return serverapi.NewPusher(serverapi.PusherConfig{
		Connect: func(ctx context.Context) (*serverapi.Client, error) { return connectSPIRE(ctx, cfg, source) },
		Desired: func() ([]*spiffebundle.Bundle, error) { return readBundles(cfg.Bundles) },
		Every:   cfg.Every, Metrics: metrics, Log: log,
	})
}

// connectSPIRE waits for our identity, whose trust domain is that of the server.
func connectSPIRE(ctx context.Context, cfg principalconfig.SPIRE, source *workload.Source) (*serverapi.Client, error) {
	c := serverapi.ClientConfig{Address: cfg.Server}
	if _, local, err := serverapi.ParseAddress(cfg.Server); err != nil {
		return nil, err
	} else if !local {
		self, err := source.WaitID(ctx)
		if err != nil {
			return nil, err
		}
		c.Credentials = serverapi.AdminCredentials(source, source, self.TrustDomain())
	}
	return serverapi.NewClient(c)
}

// readBundles returns the bundles of a folder, and what is wrong with those that it
// cannot read. Names that begin with a dot are passed over, as Kubernetes has them beside
// what it mounts.
func readBundles(folder string) ([]*spiffebundle.Bundle, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("spire.bundles: %w", err)
	}
	var (
		bundles  []*spiffebundle.Bundle
		problems []error
	)
	for _, entry := range entries {
		name, isOne := strings.CutSuffix(entry.Name(), bundleSuffix)
		if !isOne || strings.HasPrefix(name, ".") {
			continue
		}
		if len(bundles)+len(problems) == maxPushed {
			problems = append(problems,
				fmt.Errorf("spire.bundles: %s has more than %d files, and only these are pushed", folder, maxPushed))
			break
		}
		bundle, err := readBundle(filepath.Join(folder, entry.Name()), name)
		if err != nil {
			problems = append(problems, fmt.Errorf("spire.bundles: %s: %w", entry.Name(), err))
			continue
		}
		bundles = append(bundles, bundle)
	}
	return bundles, errors.Join(problems...)
}

// readBundle reads the document of a trust domain, which it does not name itself.
func readBundle(file, trustDomain string) (*spiffebundle.Bundle, error) {
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, fmt.Errorf("the name is not that of a trust domain: %w", err)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()                                   // it is only read
	text, err := io.ReadAll(io.LimitReader(f, spire.MaxBundleBytes+1)) // ParseBundle refuses more
	if err != nil {
		return nil, err
	}
	return spire.ParseBundle(td, text)
}
