//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/backendtest"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// TestKubeStore holds backends/kube against a control plane of its own, since it
// takes its definitions and its API server away.
func TestKubeStore(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "argocd")
	h := harnesstest.New(t)
	cluster, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
		Name: "store",
		// Else a stopping API server waits a minute for the watches to end.
		ServerArgs: []string{"--shutdown-watch-termination-grace-period=1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.EnsureNamespace(t.Context(), backendtest.Namespace); err != nil {
		t.Fatal(err)
	}
	definitions, err := h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}

	t.Run("waits for the definitions", func(t *testing.T) {
		s := startKubeStore(t, cluster)
		const missing = "custom resource definition is missing"
		env.Eventually(t, "two missing definitions in the log", func() error { return s.logged(missing, 2) })
		if err := cluster.ApplyFiles(t.Context(), definitions...); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "recovery", func() error { return s.logged("informer recovered", 2) })
		s.sync()
		if err := s.logged(missing, 2); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("contract", func(t *testing.T) {
		backendtest.Run(t, func(t testing.TB) backends.Store {
			s := startKubeStore(t, cluster)
			s.sync()
			return s.Store
		})
	})
	t.Run("survives an api server that stops", func(t *testing.T) {
		surviveOutage(t, cluster, func() error { return cluster.Server.Stop(t.Context()) })
	})
	t.Run("survives an api server that dies", func(t *testing.T) {
		surviveOutage(t, cluster, cluster.Server.Kill)
	})
}

// surviveOutage takes the API server away from a Store that runs and from one
// that starts meanwhile.
func surviveOutage(t *testing.T, cluster *harness.ControlPlane, takeAway func() error) {
	running := startKubeStore(t, cluster)
	running.sync()
	stays, goes := storeKey("stays"), storeKey("goes")
	for _, key := range []stream.ResourceKey{stays, goes} {
		if _, err := running.Create(t.Context(), key, storeApplication(key, "before")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := running.Delete(context.WithoutCancel(t.Context()), key, backends.Preconditions{})
			if err != nil && !errors.Is(err, stream.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	env.Eventually(t, "both objects in the cache", func() error { return running.holds(stays, goes) })

	if err := takeAway(); err != nil {
		t.Fatal(err)
	}
	starting := startKubeStore(t, cluster)
	for _, s := range []*kubeStore{running, starting} {
		// That many failures take the back-off to its end.
		env.Eventually(t, "failed attempts", func() error { return s.failures(12) })
		if err := s.logged("API server is unreachable", 1); err != nil {
			t.Error(err)
		}
	}
	if err := running.holds(stays, goes); err != nil {
		t.Errorf("the cache forgot during the outage: %v", err)
	}
	if _, err := running.Read(t.Context(), stays); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Read() without an API server = %v, want %v", err, stream.ErrUnavailable)
	}
	select {
	case <-starting.Synced():
		t.Error("a Store is synced without an API server")
	default:
	}

	if err := cluster.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Ready is not yet serving custom resources.
	var current backends.Object
	env.Eventually(t, "the API server to serve Applications", func() (err error) {
		current, err = running.Read(t.Context(), stays)
		return err
	})
	returned := time.Now()
	changed, err := running.Update(t.Context(), current, storeApplication(stays, "after"))
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Delete(t.Context(), goes, backends.Preconditions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*kubeStore{running, starting} {
		env.Eventually(t, "the cache to follow", func() error {
			got, _ := s.Get(stays)
			if !cmp.Equal(got, changed) {
				return fmt.Errorf("Get() (-want +got):\n%s", cmp.Diff(changed, got))
			}
			if _, ok := s.Get(goes); ok {
				return errors.New("the deleted object is there")
			}
			return nil
		})
		s.sync()
		env.Eventually(t, "the end of the outage in the log", func() error { return s.logged("API server is back", 1) })
		if err := s.logged("API server is unreachable", 1); err != nil {
			t.Error(err)
		}
	}
	t.Logf("caches followed %s after the API server served them again", time.Since(returned).Round(time.Millisecond))
}

func storeKey(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: backendtest.Namespace, Name: name}
}

func storeApplication(key stream.ResourceKey, project string) []byte {
	return fmt.Appendf(nil, `{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": {"namespace": %q, "name": %q},
		"spec": {"project": %q, "destination": {"name": "in-cluster"}, "source": {"repoURL": "https://example.com/r.git", "path": "."}}
	}`, key.Namespace, key.Name, project)
}

// kubeStore is a Store that runs until the end of the test, and what it says.
type kubeStore struct {
	*kube.Store
	t       testing.TB
	metrics *prometheus.Registry
	log     *kit.Log
}

func startKubeStore(t testing.TB, cluster *harness.ControlPlane) *kubeStore {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.REST())
	if err != nil {
		t.Fatal(err)
	}
	s := &kubeStore{t: t, metrics: prometheus.NewRegistry(), log: kit.NewLog()}
	s.log.Show(t)
	s.Store, err = kube.New(kube.Config{
		Client: client,
		Watch: map[stream.Kind][]string{
			stream.Application: nil,
			stream.AppProject:  {backendtest.Namespace},
		},
		Metrics: s.metrics,
		Log:     s.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, s.Run)
	return s
}

func (s *kubeStore) sync() {
	s.t.Helper()
	env.Eventually(s.t, "sync of the cache", func() error {
		select {
		case <-s.Synced():
			return nil
		default:
			return errors.New("not synced")
		}
	})
}

func (s *kubeStore) logged(message string, want int) error {
	if got := len(s.log.Find("message", message)); got != want {
		return fmt.Errorf("the log says %q %d times, want %d", message, got, want)
	}
	return nil
}

func (s *kubeStore) holds(keys ...stream.ResourceKey) error {
	for _, key := range keys {
		if _, ok := s.Get(key); !ok {
			return fmt.Errorf("%s is not in the cache", key)
		}
	}
	return nil
}

func (s *kubeStore) failures(least float64) error {
	families, err := s.metrics.Gather()
	if err != nil {
		return err
	}
	got := 0.0
	for _, family := range families {
		if family.GetName() == "argomesh_store_informer_failures_total" {
			for _, m := range family.GetMetric() {
				got += m.GetCounter().GetValue()
			}
		}
	}
	if got < least {
		return fmt.Errorf("argomesh_store_informer_failures_total is %v, want %v", got, least)
	}
	return nil
}
