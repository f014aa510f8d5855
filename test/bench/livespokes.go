//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/test/harness"
)

// What the small API has.
const (
	smallPath = "/api/v1/namespaces/default/configmaps/small" // an object of smallBytes
	// hangsPath is never answered, endlessPath without end.
	hangsPath   = "/api/v1/namespaces/default/configmaps/hangs"
	endlessPath = "/api/v1/namespaces/default/pods/endless/log?follow=true"

	smallBytes = 2 << 10
)

// smallAPI is the API server of simulated spokes: it answers at once, over TLS as
// API servers do.
type smallAPI struct {
	server   *http.Server
	listener net.Listener
	config   *rest.Config
}

// newSmallAPI returns one with a certificate of the authority.
func newSmallAPI(ctx context.Context, ca authority) (*smallAPI, error) {
	cert, err := ca.server.Sign(devworkload.Leaf{DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(12 * time.Hour)})
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for _, root := range ca.server.Bundle().X509Authorities() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}); err != nil {
			return nil, err
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	object := text(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "small", "namespace": "default"},
		"data": map[string]any{"key": strings.Repeat("x", smallBytes)},
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+smallPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(object) // a caller that has left is no error
	})
	mux.HandleFunc("GET "+hangsPath, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	path, _, _ := strings.Cut(endlessPath, "?")
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		for line := make([]byte, 32<<10); r.Context().Err() == nil; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	return &smallAPI{
		server:   &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: time.Minute},
		listener: l,
		config:   &rest.Config{Host: "https://localhost:" + port, TLSClientConfig: rest.TLSClientConfig{CAData: roots.Bytes()}},
	}, nil
}

// run serves until ctx is done.
func (a *smallAPI) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() }) // Serve says what there is to say
	defer stop()
	if err := a.server.ServeTLS(a.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// own returns how to reach the API on connections that are no one else's.
func (a *smallAPI) own() *rest.Config {
	config := rest.CopyConfig(a.config)
	config.Dial = (&net.Dialer{}).DialContext // client-go shares a transport by what is dialled
	return config
}

// newLiveSpoke makes the spoke's end of live access of an agent, with an API server
// behind it.
func newLiveSpoke(name, target string, ca authority, api *smallAPI) (*acceptor.Acceptor, error) {
	agent, err := identity.ParseAgentName(name)
	if err != nil {
		return nil, err
	}
	creds, err := ca.credentials(name)
	if err != nil {
		return nil, err
	}
	policy, err := access.New(access.Spoke, access.Config{Enabled: true})
	if err != nil {
		return nil, err
	}
	live, err := spoke.New(spoke.Config{
		CallsPerSecond: 1_000_000,
		REST:           api.own(), Policy: policy, Tracer: noop.NewTracerProvider().Tracer(""), Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	if err != nil {
		return nil, err
	}
	return acceptor.New(acceptor.Config{
		Target: target, Credentials: creds, Agent: agent, Services: map[stream.Service]tunnel.Handler{stream.Kubernetes: live.Serve},
		Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
}

// liveSpokes are simulated spokes whose tunnels can be opened one after the other.
type liveSpokes struct {
	names  []string
	spokes []*acceptor.Acceptor
	// callers call them through the hub, direct the API that is behind all of them.
	callers []caller
	direct  caller
	api     *smallAPI
}

// newLiveSpokes registers agents at the hub of a benchEnv, and opens nothing.
func newLiveSpokes(ctx context.Context, w *benchEnv, names []string) (*liveSpokes, error) {
	ca, err := newAuthority(w.caDir)
	if err != nil {
		return nil, err
	}
	l := &liveSpokes{names: names}
	if l.api, err = newSmallAPI(ctx, ca); err != nil {
		return nil, err
	}
	if l.direct, err = newCaller(l.api.own()); err != nil {
		return nil, err
	}
	for _, name := range names {
		spoke, err := newLiveSpoke(name, w.principal.Address, ca, l.api)
		if err != nil {
			return nil, err
		}
		l.spokes = append(l.spokes, spoke)
	}
	config := w.hub.REST()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := createAgents(ctx, client, names, map[string]any{"enabled": true}); err != nil {
		return nil, err
	}
	access, err := clusterAccess(ctx, client, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		c, err := newCaller(access[name])
		if err != nil {
			return nil, err
		}
		l.callers = append(l.callers, c)
	}
	return l, nil
}

// clusterAccess returns how Argo CD calls the clusters of agents, once their cluster
// Secrets have tokens.
func clusterAccess(ctx context.Context, client dynamic.Interface, names []string) (map[string]*rest.Config, error) {
	secrets := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(harness.ArgoCDNamespace)
	for {
		list, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: "argocd.argoproj.io/secret-type=cluster"})
		if err != nil {
			return nil, err
		}
		found := make(map[string]*rest.Config, len(names))
		for i := range list.Items {
			var secret corev1.Secret
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &secret); err != nil {
				return nil, err
			}
			config, err := harness.ClusterConfig(secret.Data)
			if err != nil {
				return nil, err
			}
			if config.BearerToken != "" {
				found[strings.TrimPrefix(secret.Name, "cluster-")] = config
			}
		}
		if !slices.ContainsFunc(names, func(name string) bool { return found[name] == nil }) {
			return found, nil
		}
		// A list of a thousand is no small thing to ask for.
		if err := idle(ctx, time.Second); err != nil {
			return nil, fmt.Errorf("%d of %d cluster Secrets have a token: %w", len(found), len(names), err)
		}
	}
}

// open opens the tunnels of some until ctx is done.
func (l *liveSpokes) open(ctx context.Context, from, to int) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range l.spokes[from:to] {
		g.Go(func() error { return s.Run(ctx) })
	}
	return g.Wait()
}

// reachable waits until each of some answers through the hub.
func (l *liveSpokes) reachable(ctx context.Context, from, to int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := from; i < to; i++ {
		g.Go(func() error {
			return harness.Eventually(ctx, l.names[i]+" answers", func() error {
				return l.callers[i].get(ctx, smallPath)
			})
		})
	}
	return g.Wait()
}
