package principalconfig

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
)

// ResourceProxy is the front door for live access to spokes.
type ResourceProxy struct {
	URL       string `koanf:"url" help:"URL by which Argo CD reaches the resource proxy; the cluster Secret of an agent names it"`
	PublicURL string `koanf:"public_url" help:"URL by which people reach the resource proxy from outside of the hub, for agentctl kubeconfig; empty for url"`

	Listen         string      `koanf:"listen" help:"unix socket on which calls to spokes come from Envoy, such as unix:///run/argomesh/resource-proxy.sock; empty for no live access"`
	MaxCalls       int         `koanf:"max_calls" help:"calls to spokes under way at a time, watches and sessions included, beyond the first 4 to each; more are answered 429"`
	MaxAgentCalls  int         `koanf:"max_agent_calls" help:"calls under way to one agent; more get 429"`
	LastKnownBytes int         `koanf:"last_known_bytes" help:"memory for the last known versions and kinds of spokes, packed"`
	Audit          Audit       `koanf:"audit"`
	Credentials    Credentials `koanf:"credentials"`
}

// Validate reports every problem.
func (p ResourceProxy) Validate() error {
	problems := p.liveProblems()
	if !isProxyURL(p.URL) {
		problems = append(problems,
			config.Invalid("url", "%q is not an https URL of a host: use one such as https://argomesh-principal:9090", p.URL))
	}
	if p.PublicURL != "" && !isProxyURL(p.PublicURL) {
		problems = append(problems,
			config.Invalid("public_url", "%q is not an https URL of a host: use one such as https://hub.example.org:9090", p.PublicURL))
	}
	return errors.Join(problems...)
}

func isProxyURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// Audit is where the records of calls to spokes go. Key: resource_proxy.audit.
type Audit struct {
	File         string `koanf:"file" help:"file to which a line of JSON is appended for each call; - for standard output, empty for none"`
	OTLPEndpoint string `koanf:"otlp_endpoint" help:"host:port of an OpenTelemetry collector (OTLP over gRPC) for the same records; empty exports none"`
	Insecure     bool   `koanf:"insecure" help:"speak to the collector without TLS"`
}

// StandardOutput is Audit.File's word for it.
const StandardOutput = "-"

// DefaultResourceProxy takes no calls; once it does, it leaves records on standard
// output.
func DefaultResourceProxy() ResourceProxy {
	return ResourceProxy{
		URL:      "https://argomesh-principal:9090",
		MaxCalls: 4096, MaxAgentCalls: 1024, LastKnownBytes: 128 << 20,
		Credentials: DefaultCredentials(),
		Audit:       Audit{File: StandardOutput},
	}
}

// Validate reports every problem.
func (a Audit) Validate() error {
	if a.OTLPEndpoint == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(a.OTLPEndpoint); err != nil || port == "" ||
		strings.Contains(a.OTLPEndpoint, "/") {
		return config.Invalid("otlp_endpoint",
			"%q is not host:port: use the collector's gRPC address, such as localhost:4317", a.OTLPEndpoint)
	}
	return nil
}

// liveProblems are those of what serves calls.
func (p ResourceProxy) liveProblems() (problems []error) {
	if p.Listen != "" {
		// Anyone who can call there says where a call came from.
		if _, _, err := listen.Parse(p.Listen); err != nil || !strings.HasPrefix(p.Listen, "unix://") {
			problems = append(problems,
				config.Invalid("listen", "%q is not a unix socket: use one such as unix:///run/argomesh/resource-proxy.sock",
					p.Listen))
		}
	}
	if p.Listen != "" && !p.Credentials.Enabled {
		problems = append(problems,
			config.Invalid("listen", "is set, and there are no tokens to call with: set resource_proxy.credentials.enabled too"))
	}
	if p.MaxCalls < 1 {
		problems = append(problems, config.Invalid("max_calls", "%d admits no call: use 1 or more", p.MaxCalls))
	}
	if p.MaxAgentCalls < 1 {
		problems = append(problems, config.Invalid("max_agent_calls", "%d admits no call: use 1 or more", p.MaxAgentCalls))
	}
	if p.LastKnownBytes < 1<<20 {
		problems = append(problems,
			config.Invalid("last_known_bytes", "%d is too little for one spoke: use 1048576 or more", p.LastKnownBytes))
	}
	return problems
}
