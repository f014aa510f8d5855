package install

import (
	"context"
	"fmt"
	"net"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
)

// redisProxy is the host of the Service by which argocd-server reaches the Redis proxy.
const redisProxy = charts.Principal

// fillIn returns values with what follows from the Argo CD of this side, where neither they nor
// those of the release say anything of it.
func (s *side) fillIn(ctx context.Context, values map[string]any,
	of func(argocd.State) map[string]any) (map[string]any, argocd.State, error) {
	argo, err := argocd.Observe(ctx, s.client, s.namespace)
	if err != nil {
		return nil, argo, s.explain(err, "look at Argo CD")
	}
	known, err := s.known(values)
	if err != nil {
		return nil, argo, err
	}
	if r := argo.Redis; r != nil && r.Cannot != "" {
		if err := s.say("Argo CD's Redis is not filled in, since %s: set config.redis by --values for trees in Argo CD",
			r.Cannot); err != nil {
			return nil, argo, err
		}
	}
	return loader.MergeMaps(values, argocd.FillIn(known, of(argo))), argo, nil
}

// known returns the values that the release will have: those that it has, and over them the
// given ones.
func (s *side) known(values map[string]any) (map[string]any, error) {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return nil, s.explain(err, "look for "+s.chart)
	}
	return loader.MergeMaps(is.Values, values), nil
}

// planServer plans that argocd-server finds the trees of spokes by the Redis proxy, if the values
// have one. The API server has tried it.
func (s *side) planServer(ctx context.Context, argo argocd.State, values map[string]any) (serverPlan, error) {
	address, byHand := redisProxyOf(values)
	if address == "" || argo.Server == nil {
		return serverPlan{}, nil
	}
	use := func(d *appsv1.Deployment) argocd.Change { return argocd.UseRedis(d, address) }
	p := serverPlan{server: argo.Server, change: use(argo.Server), decide: use}
	if p.change.Args == nil {
		return p, nil
	}
	by := argocd.Manager(argo.Server)
	switch {
	case byHand != "":
		return serverPlan{told: fmt.Sprintf("%s: give argocd-server --redis=%s and what that needs", byHand, address)}, nil
	case by != "":
		return serverPlan{told: fmt.Sprintf("argocd-server is managed by %s, which would put a change back: have that give it the"+
			" argument --redis=%s (in the chart argo-cd by server.extraArgs); without, Argo CD shows no trees of spokes", by,
			address)}, nil
	}
	return p, s.explainServer(argocd.Apply(ctx, s.client, p.server, p.decide, true))
}

// redisProxyOf returns where the values have the Redis proxy; "" for nowhere. byHand says why
// argocd-server cannot be given it here.
func redisProxyOf(values map[string]any) (address, byHand string) {
	envoy, _ := values["envoy"].(map[string]any)
	if on, is := envoy["enabled"].(bool); is && !on || !has(values, "config", "redis_proxy", "listen") {
		return "", ""
	}
	config, _ := values["config"].(map[string]any)
	listener, _ := config["envoy"].(map[string]any)
	port := "6379"
	listen, _ := listener["redis"].(string)
	if _, named, err := net.SplitHostPort(listen); err == nil {
		port = named
	}
	if tls, _ := listener["redis_tls"].(string); tls != "none" {
		byHand = "the Redis proxy has TLS (config.envoy.redis_tls)"
	}
	return net.JoinHostPort(redisProxy, port), byHand
}

// setServer carries the plan out, once the principal is there.
func (s *side) setServer(ctx context.Context, p serverPlan, o *options) error {
	if p.told != "" {
		return s.say("%s", p.told)
	}
	if p.change.Args == nil {
		return nil
	}
	err := s.alone(ctx, func(ctx context.Context) error {
		return s.explainServer(argocd.Apply(ctx, s.client, p.server, p.decide, false))
	})
	if err != nil {
		return err
	}
	if err := s.say("Deployment %s uses the Redis proxy, which shows the trees of spokes", p.server.Name); err != nil {
		return err
	}
	if o.noWait {
		return nil
	}
	return s.waitReady(ctx, workload{deployment, p.server.Name}, o.timeout)
}

// restoreServer gives argocd-server the Redis that it had, before the Redis proxy goes.
func (s *side) restoreServer(ctx context.Context, values map[string]any, timeout time.Duration) error {
	address, _ := redisProxyOf(values)
	argo, err := argocd.Observe(ctx, s.client, s.namespace)
	if err != nil {
		return s.explain(err, "look at Argo CD")
	}
	if argo.Server == nil || address == "" {
		return nil
	}
	restore := func(d *appsv1.Deployment) argocd.Change { return argocd.Restore(d, address) }
	if restore(argo.Server).Args == nil {
		if argocd.Uses(argo.Server, address) {
			return s.say("argocd-server still has --redis=%s, which was not set by agentctl: take it away", address)
		}
		return nil
	}
	if err := s.explainServer(argocd.Apply(ctx, s.client, argo.Server, restore, false)); err != nil {
		return err
	}
	if err := s.say("Deployment %s has the Redis again that it had", argo.Server.Name); err != nil {
		return err
	}
	return s.waitReady(ctx, workload{deployment, argo.Server.Name}, timeout)
}

func (s *side) explainServer(err error) error {
	if err == nil {
		return nil
	}
	return s.explain(err, "change the arguments of argocd-server")
}
