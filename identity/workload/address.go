package workload

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
)

// maxSocketPathBytes is the longest path a unix socket can have on Linux, in
// bytes (unix(7): 108 with the closing zero).
const maxSocketPathBytes = 107

// endpoint is where the Workload API is, in the words of package net.
type endpoint struct {
	network string // unix or tcp
	address string
}

// parseSocket reads a Workload API address (SPIFFE Workload Endpoint, section
// 4). TCP only on loopback: private keys travel on it in clear text.
func parseSocket(socket string) (endpoint, error) {
	bad := func(problem string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("identity.socket %q %s: write unix:///absolute/path or tcp://127.0.0.1:port", socket,
			problem)
	}
	if socket == "" {
		return bad("is not set")
	}
	u, err := url.Parse(socket)
	if err != nil {
		return bad("is not a URI")
	}
	if u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return bad("has more than scheme and address")
	}
	switch u.Scheme {
	case "unix":
		switch {
		case u.Host != "" || !filepath.IsAbs(u.Path):
			return bad("is not an absolute path (three slashes after unix:)")
		case len(u.Path) > maxSocketPathBytes:
			return bad(fmt.Sprintf("has a path of %d bytes, a unix socket allows %d", len(u.Path), maxSocketPathBytes))
		}
		return endpoint{network: "unix", address: u.Path}, nil
	case "tcp":
		addr, err := netip.ParseAddrPort(u.Host)
		switch {
		case err != nil || addr.Port() == 0 || u.Path != "":
			return bad("is not an IP address and port")
		case !addr.Addr().IsLoopback():
			return bad("is not a loopback address")
		}
		return endpoint{network: "tcp", address: addr.String()}, nil
	}
	return bad("has neither scheme unix nor tcp")
}
