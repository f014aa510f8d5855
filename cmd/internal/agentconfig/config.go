package agentconfig

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/stream"
)

// Name is that of the ConfigMap in which an agent keeps what it saw of its hub, and of the
// Lease under which one of a spoke's agents works, both in the namespace of the spoke's
// Argo CD. It is the field manager of what the agent applies there, too.
const Name = "argomesh-agent"

// HubKey is the key of ConfigMap Name that has the UID of the hub that the agent was welcomed by last.
const HubKey = "hub"

// Config is the configuration of an agent. Its keys are the reference manual;
// docs and charts follow them.
type Config struct {
	Name       identity.AgentName `koanf:"name" help:"name of this agent, as it is registered on the hub"`
	Mode       stream.Mode        `koanf:"mode" help:"managed: the hub owns the Applications; autonomous: this spoke does"`
	Namespace  string             `koanf:"namespace" help:"the spoke's Argo CD namespace, where its Applications and AppProjects are"`
	Principal  Principal          `koanf:"principal"`
	Access     access.Config      `koanf:"access"`
	Policy     policy.Policy      `koanf:"policy"`
	Mapping    mapping.Settings   `koanf:"mapping"`
	Limits     Limits             `koanf:"limits"`
	LiveAccess LiveAccess         `koanf:"live_access"`
	RedisProxy RedisProxy         `koanf:"redis_proxy"`
	Tunnel     Tunnel             `koanf:"tunnel"`
	Redis      config.Redis       `koanf:"redis"`
	Kubernetes config.Kubernetes  `koanf:"kubernetes"`
	Identity   config.Identity    `koanf:"identity"`
	Admin      config.Admin       `koanf:"admin"`
	Log        config.Log         `koanf:"log"`
	Tracing    config.Tracing     `koanf:"tracing"`
}

// Default is the configuration without file, environment and flags.
func Default() Config {
	return Config{
		Namespace:  "argocd",
		Policy:     policy.Default(),
		Limits:     DefaultLimits(),
		LiveAccess: DefaultLiveAccess(),
		RedisProxy: DefaultRedisProxy(),
		Tunnel:     DefaultTunnel(),
		Principal:  Principal{Method: identity.MethodX509},
		Redis:      config.DefaultRedis(clusterinfo.Version),
		Kubernetes: config.DefaultKubernetes(),
		Admin:      config.DefaultAdmin(),
		Log:        config.DefaultLog(),
		Tracing:    config.DefaultTracing(),
	}
}

// Validate reports every problem that is not one of a block's own.
func (c Config) Validate() error {
	var problems []error
	if c.Name.IsZero() {
		problems = append(problems,
			config.Invalid("name", "is not set: give the name under which this agent is registered on the hub"))
	}
	if c.Mode == 0 {
		problems = append(problems,
			config.Invalid("mode", "is not set: use managed or autonomous, as the agent is registered on the hub"))
	}
	if len(validation.ValidateNamespaceName(c.Namespace, false)) > 0 {
		problems = append(problems,
			config.Invalid("namespace", "%q cannot be a namespace: give the one Argo CD runs in, such as argocd", c.Namespace))
	}
	return errors.Join(problems...)
}
