package main

import (
	"context"
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

// describeSpoke asks until the API server answers; false when ctx was done first.
func describeSpoke(ctx context.Context, cfg *rest.Config, client dynamic.Interface, log zerolog.Logger) (s spoke, ok bool) {
	versions, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		log.Error().Err(err).Msg("no discovery client for the spoke's API server") // cfg made another client before
		return s, false
	}
	backOff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}
	said := false
	err = backOff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		ns, err := client.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			s.uid = string(ns.GetUID())
			info, verr := versions.ServerVersion()
			if err = verr; err == nil {
				s.version = info.GitVersion
				return true, nil
			}
		}
		if ctx.Err() == nil && !said {
			said = true
			log.Warn().Err(err).Msg("the spoke's API server does not answer, waiting for it")
		}
		return false, nil
	})
	return s, err == nil
}
