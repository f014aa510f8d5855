package principalconfig

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// Config is the configuration of the principal. Its keys are the reference
// manual; docs and charts follow them.
type Config struct {
	Namespace     string            `koanf:"namespace" help:"the hub's Argo CD namespace, where the Agents, AppProjects and cluster Secrets are"`
	Stream        Stream            `koanf:"stream"`
	Limits        Limits            `koanf:"limits"`
	Tunnel        Tunnel            `koanf:"tunnel"`
	ResourceProxy ResourceProxy     `koanf:"resource_proxy"`
	RedisProxy    RedisProxy        `koanf:"redis_proxy"`
	Envoy         Envoy             `koanf:"envoy"`
	Hub           Hub               `koanf:"hub"`
	Mapping       Mapping           `koanf:"mapping"`
	Repositories  Repositories      `koanf:"repositories"`
	Projects      Projects          `koanf:"projects"`
	Mesh          meshconfig.Mesh   `koanf:"mesh"`
	Redis         config.Redis      `koanf:"redis"`
	SPIRE         SPIRE             `koanf:"spire"`
	Kubernetes    config.Kubernetes `koanf:"kubernetes"`
	Identity      config.Identity   `koanf:"identity"`
	Admin         config.Admin      `koanf:"admin"`
	Log           config.Log        `koanf:"log"`
	Tracing       config.Tracing    `koanf:"tracing"`
}

// Hub says what else there is on the hub.
type Hub struct {
	ApplicationController bool `koanf:"application_controller" help:"whether the hub's Argo CD has an application controller, which deploys the Applications that are for no agent. Where it has none, set false: then an Application whose destination is not a cluster says so, and its sync ends"`
}

// Repositories says which Secrets of repositories managed agents get beside those of
// their projects.
type Repositories struct {
	ShareUnscoped bool `koanf:"share_unscoped" help:"sends Secrets of repositories without a project too, each to the agents of which an Application uses it"`
}

// Projects says which AppProjects managed agents get beside those that name them.
type Projects struct {
	// ShareDefault is nil where no one decided: then ConfigMap argomesh-hub says it.
	ShareDefault *bool `koanf:"share_default" help:"sends the AppProject default too, which admits every agent as Argo CD makes it; a spoke takes it where policy.adopt of its agent names appproject/default. Without a value a new hub does not, and one that did before there was this setting goes on"`
}

// Default is the configuration without file, environment and flags.
func Default() Config {
	return Config{
		Namespace:     "argocd",
		Mapping:       DefaultMapping(),
		Stream:        Stream{Listen: ":8443", MaxConnections: 20000},
		Limits:        DefaultLimits(),
		Tunnel:        DefaultTunnel(),
		ResourceProxy: DefaultResourceProxy(),
		RedisProxy:    DefaultRedisProxy(),
		Envoy:         DefaultEnvoy(),
		Hub:           Hub{ApplicationController: true},
		Mesh:          meshconfig.Default(),
		Redis:         config.DefaultRedis(clusterinfo.Version),
		SPIRE:         DefaultSPIRE(),
		Kubernetes:    config.DefaultKubernetes(),
		Admin:         config.DefaultAdmin(),
		Log:           config.DefaultLog(),
		Tracing:       config.DefaultTracing(),
	}
}

// Validate reports every problem that is not one of a block's own.
func (c Config) Validate() error {
	if len(validation.ValidateNamespaceName(c.Namespace, false)) > 0 {
		return config.Invalid("namespace", "%q cannot be a namespace: give the one Argo CD runs in, such as argocd",
			c.Namespace)
	}
	return c.meshProblem()
}

// meshProblem says what the mesh brings and no listener takes.
func (c Config) meshProblem() error {
	m := c.Mesh
	if m.Exposure == "" {
		return nil
	}
	listeners, _ := c.Stream.All()
	listeners = slices.DeleteFunc(listeners, func(l Listener) bool { return l.Method != m.Method })
	if len(listeners) == 0 {
		return config.Invalid("mesh.method",
			"no listener has method %s: add one to stream.listeners, where the mesh brings agents", m.Method)
	}
	if m.Method != identity.MethodHeader {
		return nil
	}
	at := slices.IndexFunc(listeners, func(l Listener) bool { return l.Address() == m.Upstream().String() })
	if at < 0 {
		return config.Invalid("mesh.stream_upstream",
			"%q is not a listener of method %s: give the listen of one in stream.listeners", m.Upstream(), m.Method)
	}
	if trusted := listeners[at].Header.TrustedProxies; m.Exposure == mesh.ExposureGateway &&
		!slices.Contains(trusted, m.Gateway.SPIFFEID) {
		return config.Invalid("mesh.gateway.spiffe_id",
			"%s is not among header.trusted_proxies of %s, so the principal would take the gateway for the agent: add it there",
			m.Gateway.SPIFFEID, m.Upstream())
	}
	return nil
}
