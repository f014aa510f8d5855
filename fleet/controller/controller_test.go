package controller_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
)

type nobody struct{}

func (nobody) Session(identity.AgentName) controller.Session      { return controller.Session{} }
func (nobody) Subscribe(func(identity.AgentName)) (cancel func()) { return func() {} }

func TestNewChecksItsConfig(t *testing.T) {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	valid := func() controller.Config {
		return controller.Config{
			Client: client, Namespace: "argocd", ProxyURL: "https://proxy:9090/", Sessions: nobody{},
			Teardown: func(context.Context, v1alpha1.Agent) (string, error) { return "", nil },
			Metrics:  prometheus.NewRegistry(), Log: zerolog.Nop(),
		}
	}
	if _, err := controller.New(valid()); err != nil {
		t.Errorf("New() = %v", err)
	}
	tests := map[string]struct {
		change func(*controller.Config)
		want   []string
	}{
		"everything is missing": {
			change: func(c *controller.Config) { *c = controller.Config{} },
			want:   []string{"client", "namespace", "sessions", "teardown", "metrics", "proxy url"},
		},
		"a proxy without tls":       {func(c *controller.Config) { c.ProxyURL = "http://proxy:9090" }, []string{"proxy url"}},
		"a proxy with a path":       {func(c *controller.Config) { c.ProxyURL = "https://proxy:9090/x" }, []string{"proxy url"}},
		"a proxy with a password":   {func(c *controller.Config) { c.ProxyURL = "https://u:p@proxy:9090" }, []string{"proxy url"}},
		"a proxy that is no URL":    {func(c *controller.Config) { c.ProxyURL = "https://[" }, []string{"proxy url"}},
		"a proxy with a query":      {func(c *controller.Config) { c.ProxyURL = "https://proxy?agentName=x" }, []string{"proxy url"}},
		"a registry that is in use": {func(c *controller.Config) { used(t, c) }, []string{"register metrics"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := valid()
			tt.change(&cfg)
			_, err := controller.New(cfg)
			if err == nil {
				t.Fatal("New() takes it")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("New() = %v, want something about %s", err, part)
				}
			}
		})
	}
}

// used registers the metrics of another controller with cfg's registry.
func used(t *testing.T, cfg *controller.Config) {
	t.Helper()
	if _, err := controller.New(*cfg); err != nil {
		t.Fatal(err)
	}
}
