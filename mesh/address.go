package mesh

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/argomesh/argomesh/identity"
)

const (
	unixScheme = "unix://"
	// maxUnixPath is the longest path of a unix socket, in bytes: sun_path of
	// unix(7) less the closing zero.
	maxUnixPath = 107
)

// Address is where something listens: a TCP address or a unix socket. It never is
// a host name, which a mesh would have to resolve. It is comparable and may be a
// map key. The zero value is no address.
type Address struct {
	tcp  netip.AddrPort
	unix string
}

// ParseAddress reads ip:port, [ip]:port or unix:///path with an absolute path. The
// IP may be unspecified (0.0.0.0, or [::] for both families), the port may not be
// 0. The error wraps [identity.ErrInvalid].
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, unixScheme); ok {
		switch {
		case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
			return Address{}, fmt.Errorf("address %q: a unix socket is unix:// and an absolute, plain path: %w", s,
				identity.ErrInvalid)
		case len(path) > maxUnixPath:
			return Address{}, fmt.Errorf("address %q: the path has %d bytes, the system allows %d: %w", s, len(path),
				maxUnixPath, identity.ErrInvalid)
		}
		return Address{unix: path}, nil
	}
	tcp, err := netip.ParseAddrPort(s)
	if err != nil || tcp.Port() == 0 || tcp.Addr().Zone() != "" {
		return Address{}, fmt.Errorf("address %q: use ip:port, such as 0.0.0.0:9090, or unix:///path: %w", s,
			identity.ErrInvalid)
	}
	return Address{tcp: tcp}, nil
}

// TCP returns the TCP address; ok is false for a unix socket and the zero value.
func (a Address) TCP() (addr netip.AddrPort, ok bool) { return a.tcp, a.tcp.IsValid() }

// Unix returns the path of the unix socket; ok is false for a TCP address and the
// zero value.
func (a Address) Unix() (path string, ok bool) { return a.unix, a.unix != "" }

// IsZero reports whether a is no address.
func (a Address) IsZero() bool { return a == Address{} }

// IsLocal reports whether only this machine, or pod, can reach a.
func (a Address) IsLocal() bool { return a.unix != "" || a.tcp.Addr().IsLoopback() }

// String returns what [ParseAddress] reads, or "" for the zero value.
func (a Address) String() string {
	switch {
	case a.unix != "":
		return unixScheme + a.unix
	case a.tcp.IsValid():
		return a.tcp.String()
	}
	return ""
}

// MarshalText returns the address, empty for the zero value. It never fails.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText sets a to the address in text; empty text gives the zero value. The
// error wraps [identity.ErrInvalid] and leaves a as it was.
func (a *Address) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = Address{}
		return nil
	}
	parsed, err := ParseAddress(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}
