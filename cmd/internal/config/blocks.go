package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/cmd/internal/listen"
)

// Log says what is written to standard error, and how. Key: log.
type Log struct {
	Level  Level  `koanf:"level" help:"least severe messages written: trace, debug, info, warn or error"`
	Format string `koanf:"format" help:"json for machines, console for people"`
}

// The values of [Log.Format].
const (
	FormatJSON    = "json"
	FormatConsole = "console"
)

// DefaultLog writes messages from info on as JSON.
func DefaultLog() Log { return Log{Level: Level(zerolog.InfoLevel), Format: FormatJSON} }

// Validate checks the format; the level is checked where it is parsed.
func (l Log) Validate() error {
	if l.Format != FormatJSON && l.Format != FormatConsole {
		return Invalid("format", "%q is not a format: use %s or %s", l.Format, FormatJSON, FormatConsole)
	}
	return nil
}

// Level is one of zerolog's levels from trace to error. The zero value is debug,
// as it is there.
type Level zerolog.Level

// UnmarshalText accepts the lower-case names, nothing else.
func (l *Level) UnmarshalText(text []byte) error {
	for level := zerolog.TraceLevel; level <= zerolog.ErrorLevel; level++ {
		if string(text) == level.String() {
			*l = Level(level)
			return nil
		}
	}
	return fmt.Errorf("%q is not a level: use trace, debug, info, warn or error", text)
}

// MarshalText returns the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the level's name.
func (l Level) String() string { return zerolog.Level(l).String() }

// Admin is the HTTP server for health and metrics. Key: admin.
type Admin struct {
	Listen string `koanf:"listen" help:"address of /livez, /readyz, /identity and /metrics: host:port or unix:///path"`
}

// DefaultAdmin listens on port 8080 of every address, as kubelet and Prometheus
// expect it.
func DefaultAdmin() Admin { return Admin{Listen: ":8080"} }

// Validate checks the form of the address.
func (a Admin) Validate() error { return Address("listen", a.Listen) }

// Tracing is the export of OpenTelemetry traces. Key: tracing.
type Tracing struct {
	OTLPEndpoint string  `koanf:"otlp_endpoint" help:"host:port of an OpenTelemetry collector (OTLP over gRPC); empty exports nothing"`
	Insecure     bool    `koanf:"insecure" help:"speak to the collector without TLS"`
	SampleRatio  float64 `koanf:"sample_ratio" help:"share of new traces that are recorded, 0 to 1; a trace begun elsewhere is kept as it is"`
}

// DefaultTracing exports nothing; switched on, it records every trace.
func DefaultTracing() Tracing { return Tracing{SampleRatio: 1} }

// Validate checks endpoint and ratio.
func (t Tracing) Validate() error {
	var problems []error
	if t.OTLPEndpoint != "" {
		if _, port, err := net.SplitHostPort(t.OTLPEndpoint); err != nil || port == "" ||
			strings.Contains(t.OTLPEndpoint, "/") {
			problems = append(problems,
				Invalid("otlp_endpoint", "%q is not host:port: use the collector's gRPC address, such as localhost:4317",
					t.OTLPEndpoint))
		}
	}
	if !(t.SampleRatio >= 0 && t.SampleRatio <= 1) { // NaN too
		problems = append(problems, Invalid("sample_ratio", "%v is out of range: use 0 to 1", t.SampleRatio))
	}
	return errors.Join(problems...)
}

// Kubernetes says which API server to use, and how hard. Key: kubernetes. Package
// kubeconfig makes a client configuration of it.
type Kubernetes struct {
	Kubeconfig string  `koanf:"kubeconfig" help:"path of a kubeconfig; empty inside a Kubernetes cluster"`
	Context    string  `koanf:"context" help:"context of the kubeconfig; empty for its current one"`
	QPS        float32 `koanf:"qps" help:"requests per second this process allows itself for what the other side has it write, and as many for all else; negative for no limit of its own"`
	Burst      int     `koanf:"burst" help:"requests it may be ahead of qps"`
}

// DefaultKubernetes uses the Kubernetes cluster the process runs in. Its limits
// are high: the API server's own priority and fairness is the protection.
func DefaultKubernetes() Kubernetes { return Kubernetes{QPS: 500, Burst: 1000} }

// Validate checks the limits, and that a context has a kubeconfig.
func (k Kubernetes) Validate() error {
	var problems []error
	if k.QPS == 0 || k.QPS != k.QPS {
		problems = append(problems, Invalid("qps", "%v allows no request: use a positive number, or -1 for no limit", k.QPS))
	}
	if k.QPS > 0 && k.Burst < 1 {
		problems = append(problems, Invalid("burst", "%d allows no request: use 1 or more", k.Burst))
	}
	if k.Context != "" && k.Kubeconfig == "" {
		problems = append(problems,
			Invalid("context", "%q needs a kubeconfig to be looked up in: set kubernetes.kubeconfig too", k.Context))
	}
	return errors.Join(problems...)
}

// Identity says where our SVID comes from, and which one it is when the Workload
// API offers several. Key: identity.
type Identity struct {
	Socket   string      `koanf:"socket" env:"SPIFFE_ENDPOINT_SOCKET" help:"address of the Workload API, such as unix:///run/spire/agent/api.sock"`
	SPIFFEID spiffeid.ID `koanf:"spiffe_id" help:"the SPIFFE ID of the SVID to use; needed only when several are offered"`
	Hint     string      `koanf:"hint" help:"the hint of the SVID to use; needed only when several are offered, beside spiffe_id when they have the same one"`
}

// Validate checks the form of the socket.
func (i Identity) Validate() error {
	var problems []error
	if i.Socket == "" {
		problems = append(problems,
			Invalid("socket", "is not set: give the address of the Workload API, such as unix:///run/spire/agent/api.sock"))
	} else if err := workloadapi.ValidateAddress(i.Socket); err != nil {
		problems = append(problems,
			Invalid("socket", "%q is not the address of a Workload API: use unix:///path or tcp://ip:port", i.Socket))
	}
	return errors.Join(problems...)
}

// CheckFolder returns a [*KeyError] when the folder of a unix socket is missing.
// The socket itself appears when the Workload API starts, and a process waits for
// it; its folder is mounted before the process starts, and without it waiting is
// in vain.
func (i Identity) CheckFolder() error {
	path, found := strings.CutPrefix(i.Socket, "unix://")
	if !found {
		return nil
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return Invalid("identity.socket",
			"the folder of %s does not exist: mount the Workload API's socket there, or give the path it has", path)
	}
	return nil
}

// Address returns a [*KeyError] for key when address is not one package listen
// can open.
func Address(key, address string) error {
	if _, _, err := listen.Parse(address); err != nil {
		return Invalid(key, "%v", err)
	}
	return nil
}
