package install

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
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
// have one, and takes Applications of the namespaces of agents. The API server has tried it.
func (s *side) planServer(ctx context.Context, argo argocd.State, values map[string]any) (p serverPlan, err error) {
	if argo.Server == nil {
		return p, nil
	}
	var flags []argocd.Flag
	address, byHand := redisProxyOf(values)
	if redis := argocd.RedisAt(address); address != "" && byHand == "" {
		flags = append(flags, redis)
	} else if address != "" && !argocd.Has(argo.Server, redis) {
		p.told = append(p.told, fmt.Sprintf("%s: give argocd-server --redis=%s and what that needs", byHand, address))
	}
	if argo.OwnNamespaces == "" {
		may, err := argocd.MayListAll(ctx, s.client, argo.Server)
		if err != nil {
			return p, s.explain(err, "ask what argocd-server may list")
		}
		if may {
			flags = append(flags, argocd.AnyNamespace())
		} else {
			p.told = append(p.told, "argocd-server shows no Applications of other namespaces, such as those of autonomous agents, since"+
				" its service account may not list them, as far as you may ask: give it the rights of examples/k8s-rbac of Argo CD, and run this again")
		}
	}
	change := func(d *appsv1.Deployment) argocd.Change { return argocd.Use(d, flags...) }
	if change(argo.Server).Args == nil {
		return p, nil
	}
	if by := argocd.Manager(argo.Server); by != "" {
		p.told = append(p.told, fmt.Sprintf("argocd-server is managed by %s, which would put a change back: have that give it the"+
			" arguments %s (in the chart argo-cd by server.extraArgs); without, Argo CD does not show what is on spokes", by,
			strings.Join(argocd.Texts(flags), " ")))
		return p, nil
	}
	p.server, p.change, p.decide, p.flags = argo.Server, change(argo.Server), change, flags
	return p, explainServer(s, argocd.Apply(ctx, s.client, p.server, p.decide, true))
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
	if err := sayAll(s, p.told); err != nil || p.change.Args == nil {
		return err
	}
	err := s.turns().Take(ctx, func(ctx context.Context) error {
		return explainServer(s, argocd.Apply(ctx, s.client, p.server, p.decide, false))
	})
	if err != nil {
		return err
	}
	if err := s.say("Deployment %s has %s, by which it shows what is on spokes", p.server.Name,
		strings.Join(argocd.Texts(p.flags), " ")); err != nil {
		return err
	}
	if o.noWait {
		return nil
	}
	return s.waitReady(ctx, rollout.Workload{Kind: rollout.Deployment, Name: p.server.Name}, o.timeout)
}

// withdrawTerminal gives Argo CD its setting of terminals back.
func withdrawTerminal(ctx context.Context, s *side) error {
	if s.chart != charts.Principal {
		return nil
	}
	told, err := argocd.WithdrawTerminal(ctx, s.client, s.namespace)
	if err != nil {
		return s.explain(err, "restore exec.enabled in ConfigMap argocd-cm")
	}
	return sayAll(s, told)
}

// planRestore plans that argocd-server has the flags again that it had, before the Redis proxy goes.
func (s *side) planRestore(ctx context.Context, values map[string]any) (p serverPlan, err error) {
	if s.chart != charts.Principal {
		return p, nil
	}
	address, _ := redisProxyOf(values)
	argo, err := argocd.Observe(ctx, s.client, s.namespace)
	if err != nil {
		return p, s.explain(err, "look at Argo CD")
	}
	if argo.Server == nil {
		return p, nil
	}
	flags := []argocd.Flag{argocd.AnyNamespace()}
	if address != "" {
		redis := argocd.RedisAt(address)
		flags = append(flags, redis)
		if _, ours := argo.Server.Annotations[redis.Before]; !ours && argocd.Has(argo.Server, redis) {
			p.told = append(p.told, fmt.Sprintf("argocd-server still has --redis=%s, which was not set by agentctl:"+
				" take it away", address))
		}
	}
	p.server = argo.Server
	p.decide = func(d *appsv1.Deployment) argocd.Change { return argocd.Restore(d, flags...) }
	p.change = p.decide(argo.Server)
	for _, f := range flags {
		if argocd.Restore(argo.Server, f).Args != nil {
			p.flags = append(p.flags, f)
		}
	}
	if p.change.Args != nil {
		p.told = append(p.told, fmt.Sprintf("Deployment %s will get back the arguments that it had, without %s, and"+
			" restart", argo.Server.Name, strings.Join(argocd.Texts(p.flags), " ")))
	}
	return p, nil
}

// restoreServer carries such a plan out.
func (s *side) restoreServer(ctx context.Context, p serverPlan, noWait bool, timeout time.Duration) error {
	if p.change.Args == nil {
		return nil
	}
	if err := explainServer(s, argocd.Apply(ctx, s.client, p.server, p.decide, false)); err != nil {
		return err
	}
	if err := s.say("Deployment %s has the arguments again that it had", p.server.Name); err != nil || noWait {
		return err
	}
	return s.waitReady(ctx, rollout.Workload{Kind: rollout.Deployment, Name: p.server.Name}, timeout)
}

func explainServer(s *side, err error) error {
	if err == nil {
		return nil
	}
	return s.explain(err, "change the arguments of argocd-server")
}
