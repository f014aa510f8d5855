package principalconfig

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/identity"
)

// Listener is one more listener for agents, with its method.
type Listener struct {
	// Listen is host:port or unix:///path. Empty means [meshconfig.StreamSocket] for
	// method header, where no forwarded port leads to it as to loopback.
	Listen string `koanf:"listen" help:"address: host:port or unix:///path; of this pod alone with method header or plaintext. Empty for unix:///run/argomesh/stream.sock with method header"`
	// Method is spiffe-x509 (mutual TLS), spiffe-jwt (TLS terminates here or before, agents
	// send a JWT-SVID) or header (a proxy of this pod terminates mutual TLS, and says who it
	// was in x-forwarded-client-cert).
	Method string `koanf:"method" help:"spiffe-x509, spiffe-jwt or header"`
	// Plaintext is for spiffe-jwt behind a proxy of this pod: no TLS, on loopback or a
	// unix socket. Method header has none in every case, spiffe-x509 always has.
	Plaintext bool `koanf:"plaintext" help:"no TLS, for spiffe-jwt behind a proxy of this pod"`
	// Header is for method header.
	Header Header `koanf:"header"`
}

// Header says what to believe of x-forwarded-client-cert.
type Header struct {
	// TrustedProxies are the SPIFFE IDs of gateways between the agents and the proxy of
	// this pod. Empty means none.
	TrustedProxies []spiffeid.ID `koanf:"trusted_proxies" help:"SPIFFE IDs of gateways between the agents and the proxy of this pod"`
	// MaxAge is for how long to believe an element without Cert. Zero means that it is
	// refused.
	MaxAge time.Duration `koanf:"max_age" help:"for how long to believe an element without Cert; 0 refuses it"`
}

// Address is where the listener listens: what Listen says or stands for.
func (l Listener) Address() string {
	if l.Listen == "" && l.byProxy() {
		return meshconfig.StreamSocket
	}
	return l.Listen
}

// byProxy reports whether the listener believes a proxy beside the principal.
func (l Listener) byProxy() bool {
	m, _ := identity.MethodNamed(l.Method)
	return m.ByProxy
}

// validate reports every problem of the listener under key.
func (l Listener) validate(key string) error {
	var problems []error
	wrong := func(name, format string, args ...any) {
		problems = append(problems, config.Invalid(key+"."+name, format, args...))
	}
	if err := config.Address(key+".listen", l.Address()); err != nil {
		problems = append(problems, err)
	} else if (l.Plaintext || l.byProxy()) && !local(l.Address()) {
		wrong("listen",
			"%q can be reached from other machines, and anyone who reaches it could claim any identity: use an address of loopback such as 127.0.0.1:8444, or unix:///path", l.Listen)
	}
	m, known := identity.MethodNamed(l.Method)
	if !known {
		wrong("method", "%q is not a method: use %s", l.Method, identity.MethodNames(nil))
	}
	if l.Plaintext && known && !m.HasGateway() {
		wrong("plaintext", "leaves nothing to authenticate agents by: remove it, or use another method")
	}
	if !m.ByProxy && (len(l.Header.TrustedProxies) > 0 || l.Header.MaxAge != 0) {
		wrong("header", "is for method %s: remove it, or use that method",
			identity.MethodNames(func(m identity.Method) bool { return m.ByProxy }))
	}
	for _, id := range l.Header.TrustedProxies {
		if err := identity.CheckID(id); err != nil {
			wrong("header.trusted_proxies", "%v", err)
		}
	}
	if l.Header.MaxAge < 0 || l.Header.MaxAge > 0 && l.Header.MaxAge < minMaxAge {
		wrong("header.max_age",
			"%s is too short for agents to connect again in time: use %s or more, or 0 to refuse what has no Cert",
			l.Header.MaxAge, minMaxAge)
	}
	return errors.Join(problems...)
}

// minMaxAge is the shortest Header.MaxAge. An agent connects again at half of it.
const minMaxAge = 30 * time.Second

// local reports whether only processes of this machine, or pod, reach an address
// that package listen can open.
func local(address string) bool {
	network, at, err := listen.Parse(address)
	if err != nil {
		return false
	}
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host) // a name may mean anything
	return err == nil && ip.IsLoopback()
}
