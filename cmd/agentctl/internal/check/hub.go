package check

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

func loadBalancer(f *Facts) []Finding {
	const word = "LoadBalancerPending"
	if f.Side != Hub || f.Deployment.is == nil {
		return nil
	}
	if f.OfHub.Service.err != nil {
		return unread(word, "Service of the principal", f.OfHub.Service.err)
	}
	s := f.OfHub.Service.is
	if s == nil {
		return []Finding{found(Problem, "ServiceMissing", "Service of the principal",
			"is not there: agents cannot reach it", "run \"agentctl hub install\", which brings it back")}
	}
	about := "Service " + s.Name
	if s.Spec.Type == "LoadBalancer" && len(s.Status.LoadBalancer.Ingress) == 0 {
		return []Finding{found(Problem, word, about, "waits for an address of its load balancer", "")}
	}
	return well(word, about, fmt.Sprintf("is of type %s", s.Spec.Type))
}

// redisOfServer finds an argocd-server that does not ask the Redis proxy.
func redisOfServer(f *Facts) []Finding {
	const word, about = "RedisNotOurs", "argocd-server"
	if f.Side != Hub || f.ArgoCD.err != nil || f.ArgoCD.is.Server == nil || f.Deployment.is == nil {
		return nil
	}
	if f.Config.err != nil {
		return unread("RedisProxyOff", "configuration of the principal", f.Config.err)
	}
	if f.text("redis_proxy", "listen") == "" {
		return []Finding{found(Warning, "RedisProxyOff", about, "shows no trees of spokes: the principal has no Redis proxy", "")}
	}
	host := f.Side.chart()
	if !argocd.UsesHost(f.ArgoCD.is.Server, host) {
		return []Finding{found(Problem, word, about, "shows no trees of spokes: its Redis is not the Redis proxy", "")}
	}
	return well(word, about, "uses the Redis proxy")
}

// namespacesOfServer finds namespaces of autonomous agents of which argocd-server takes no Applications.
func namespacesOfServer(f *Facts) []Finding {
	const word, about = "NamespacesNotWatched", "argocd-server"
	if f.Side != Hub || f.ArgoCD.err != nil || f.ArgoCD.is.Server == nil || f.OfHub.Agents.err != nil {
		return nil // said before
	}
	watches := mapping.NamespaceMatcher(strings.FieldsFunc(f.ArgoCD.is.Namespaces, func(r rune) bool {
		return r == ',' || r == ' '
	}))
	var missing []string
	for i := range f.OfHub.Agents.is {
		for _, namespace := range ownNamespaces(&f.OfHub.Agents.is[i]) {
			if namespace != f.Namespace && !watches(namespace) {
				missing = append(missing, namespace)
			}
		}
	}
	switch n, err := len(missing), f.ArgoCD.is.Unread.Params; {
	case n > 0 && err != nil: // which may name them
		return unread(word, about, err)
	case n == 1:
		return []Finding{found(Warning, word, about, "does not show the Applications of an autonomous agent in namespace "+
			missing[0], "")}
	case n > 1:
		return []Finding{found(Warning, word, about, fmt.Sprintf("does not show the Applications of autonomous agents in %d"+
			" namespaces, the first %s", n, slices.Min(missing)), "")}
	}
	return well(word, about, "takes Applications of the namespaces of autonomous agents")
}

// terminal finds a hub whose Argo CD offers no terminals, although Agents let it open some.
func terminal(f *Facts) []Finding {
	const word, about = "TerminalOff", "ConfigMap argocd-cm"
	if f.Side != Hub || f.ArgoCD.err != nil || f.ArgoCD.is.Server == nil || f.OfHub.Agents.err != nil {
		return nil // said before
	}
	var with []string
	for i := range f.OfHub.Agents.is {
		a := &f.OfHub.Agents.is[i]
		if a.Spec.Access != nil && a.Spec.Access.Enabled && a.Spec.Access.Exec {
			with = append(with, a.Name)
		}
	}
	switch {
	case len(with) == 0:
		return nil
	case f.ArgoCD.is.Unread.Settings != nil:
		return unread(word, about, f.ArgoCD.is.Unread.Settings)
	case !f.ArgoCD.is.Terminal:
		return []Finding{found(Warning, word, about, fmt.Sprintf("has no exec.enabled: \"true\", so Argo CD offers no"+
			" terminals, and %d Agents have exec, the first %s", len(with), slices.Min(with)), "")}
	}
	return well(word, about, "has Argo CD offer terminals")
}

// ownNamespaces are those in which the hub shows the Applications of an autonomous agent; none for another.
func ownNamespaces(a *v1alpha1.Agent) (out []string) {
	if a.Spec.Mode != v1alpha1.ModeAutonomous {
		return nil
	}
	if a.Spec.Mapping == nil || len(a.Spec.Mapping.Namespaces) == 0 {
		return []string{a.Name}
	}
	for _, m := range a.Spec.Mapping.Namespaces {
		out = append(out, m.Hub)
	}
	return out
}

// redisPolicy finds a NetworkPolicy that keeps our pods from Argo CD's Redis.
func redisPolicy(f *Facts) []Finding {
	const word = "RedisShut"
	if f.Config.err != nil {
		return unread(word, "configuration of the "+f.Side.program(), f.Config.err)
	}
	if f.text("redis", "address") == "" {
		return nil
	}
	if f.Network.Policies.err != nil {
		return unread(word, "NetworkPolicies", f.Network.Policies.err)
	}
	shut := ""
	for i := range f.Network.Policies.is {
		p := &f.Network.Policies.is[i]
		if p.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"] != "argocd-redis" {
			continue
		}
		shut = p.Name
		for _, rule := range p.Spec.Ingress {
			for _, from := range rule.From {
				if from.PodSelector != nil && from.PodSelector.MatchLabels["app.kubernetes.io/name"] == f.Side.chart() {
					return well(word, "NetworkPolicy "+p.Name, "lets our pods reach Argo CD's Redis")
				}
			}
		}
	}
	if shut == "" {
		return nil
	}
	return []Finding{found(Problem, word, "NetworkPolicy "+shut, "keeps our pods from Argo CD's Redis", "")}
}

// access finds live access that is off on this side.
func access(f *Facts) []Finding {
	const word = "LiveAccessOff"
	if f.Side == Hub {
		return nil // each Agent says it
	}
	if f.Config.err != nil {
		return unread(word, "the agent", f.Config.err)
	}
	if f.Config.is == nil {
		return nil
	}
	if !f.on("access", "enabled") {
		return []Finding{found(Warning, word, "the agent", "lets the hub ask nothing of the spoke's API server: logs, events and"+
			" live manifests do not work", "set config.access.enabled of the agent's chart")}
	}
	return well(word, "the agent", "lets the hub ask the spoke's API server")
}

// agents tells what the principal says of each of them.
func agents(f *Facts) []Finding {
	if f.Side != Hub {
		return nil
	}
	if f.OfHub.Agents.err != nil {
		return unread("NotConnected", "Agents", f.OfHub.Agents.err)
	}
	var out []Finding
	for i := range f.OfHub.Agents.is {
		out = append(out, ofAgent(&f.OfHub.Agents.is[i])...)
	}
	return out
}

// trueWhenWell are the types of conditions that are true when all is well; the others are false
// then.
var trueWhenWell = []string{v1alpha1.ConditionReady, v1alpha1.ConditionConnected, v1alpha1.ConditionClusterSecretReady,
	v1alpha1.ConditionMeshPolicy}

func ofAgent(a *v1alpha1.Agent) []Finding {
	about := "Agent " + a.Name
	if a.Spec.Suspended {
		return well("Suspended", about, "is suspended, on purpose")
	}
	var out []Finding
	told := []string{}
	for _, c := range a.Status.Conditions {
		wants := metav1.ConditionFalse
		if slices.Contains(trueWhenWell, c.Type) {
			wants = metav1.ConditionTrue
		}
		// Ready repeats what another condition says.
		if c.Status == wants || slices.Contains(told, c.Reason) {
			continue
		}
		told = append(told, c.Reason)
		level := Problem
		if c.Type == v1alpha1.ConditionMappingIgnored || c.Status == metav1.ConditionUnknown {
			level = Warning
		}
		says := c.Message
		if says == "" {
			says = "condition " + c.Type + " is " + string(c.Status)
		}
		out = append(out, found(level, c.Reason, about, cli.CleanText(says), ""))
	}
	if n := a.Status.Counts.Parked; n > 0 {
		out = append(out, parked(a, n))
	}
	if a.Spec.Access == nil || !a.Spec.Access.Enabled {
		out = append(out, found(Warning, "LiveAccessOff", about, "has no live access: logs, events and live manifests do not work",
			fmt.Sprintf("agentctl agent set %s --access read", a.Name)))
	}
	if len(a.Status.Conditions) == 0 {
		out = append(out, found(Problem, "NeverConnected", about, "was looked at by no principal yet", ""))
	}
	if len(out) == 0 {
		return well("Connected", about, "is connected, and as it should be")
	}
	return out
}

// parked says which objects are not applied, by the first of them.
func parked(a *v1alpha1.Agent, n int64) Finding {
	about := "Agent " + a.Name
	if len(a.Status.Parked) == 0 {
		return found(Problem, "Parked", about, fmt.Sprintf("has %d objects that are not applied", n), "")
	}
	first := a.Status.Parked[0]
	return found(Problem, first.Reason, about, fmt.Sprintf("has %d objects that are not applied, the first %s %s/%s: %s", n, first.Kind,
		first.Namespace, first.Name, cli.CleanText(first.Message)), "")
}
