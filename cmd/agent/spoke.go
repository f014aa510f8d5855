package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// spoke is what the agent tells the hub about its Kubernetes cluster.
type spoke struct {
	uid     string // of namespace kube-system, the usual identity of a cluster
	version string
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// description is whether the spoke is described yet, and if not, why. The zero value is
// not asked yet. Its methods may be called concurrently.
type description struct {
	mu    sync.Mutex // guards what follows
	known bool
	err   error
}

// ready returns nil once the spoke is described.
func (d *description) ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.known:
		return nil
	case d.err != nil:
		return d.err
	}
	return errors.New("the API server was not asked yet")
}

// set notes what came of asking, and reports whether that is new.
func (d *description) set(err error) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	news = d.err == nil || err == nil || d.err.Error() != err.Error()
	d.known, d.err = err == nil, err
	return news
}

// describeSpoke asks until the API server answers; false when ctx was done first.
func describeSpoke(ctx context.Context, cfg *rest.Config, client dynamic.Interface, d *description,
	log zerolog.Logger) (s spoke, ok bool) {
	versions, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		log.Error().Err(err).Msg("cannot make a discovery client for the spoke's API server") // cfg made another client before
		return s, false
	}
	backOff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}
	err = backOff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := s.read(ctx, client, versions)
		if news := d.set(err); err != nil && news && ctx.Err() == nil {
			log.Warn().Err(err).Msg("cannot tell the hub which cluster this is, retrying")
		}
		return err == nil, nil
	})
	return s, err == nil
}

// read asks the API server once.
func (s *spoke) read(ctx context.Context, client dynamic.Interface, versions discovery.ServerVersionInterface) error {
	ns, err := client.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s, whose UID is the cluster's: %w", metav1.NamespaceSystem, err)
	}
	info, err := versions.ServerVersion()
	if err != nil {
		return fmt.Errorf("read the version of the API server: %w", err)
	}
	s.uid, s.version = string(ns.GetUID()), info.GitVersion
	return nil
}
