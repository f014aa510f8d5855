package identity

import (
	"slices"
	"strings"
)

// The methods by which a peer proves its SPIFFE ID: [Peer.Method]. Each has a row in methods.
const (
	// MethodX509 is the X.509-SVID of a mutual TLS connection to this process.
	MethodX509 = "spiffe-x509"
	// MethodJWT is a JWT-SVID for this process, in the call.
	MethodJWT = "spiffe-jwt"
	// MethodHeader is the X.509-SVID of a mutual TLS connection to a proxy, which
	// says so in a header.
	MethodHeader = "header"
)

// Method is what settings, flags and policies need to know of a method.
type Method struct {
	Name string
	// Gateway says whether TLS may terminate before the principal, which then proves itself in
	// the call.
	Gateway GatewayUse
	// ByProxy says that the principal believes a proxy beside it: its listener is for
	// processes of the same machine or pod alone.
	ByProxy bool
}

// GatewayUse says whether a gateway may terminate TLS before the principal.
type GatewayUse int

const (
	// NoGateway means that TLS terminates at the principal.
	NoGateway GatewayUse = iota
	// MayHaveGateway means that TLS terminates at the principal or at a gateway.
	MayHaveGateway
	// NeedsGateway means that TLS always terminates before the principal.
	NeedsGateway
)

var methods = []Method{
	{Name: MethodX509},
	{Name: MethodJWT, Gateway: MayHaveGateway},
	{Name: MethodHeader, Gateway: NeedsGateway, ByProxy: true},
}

// Methods returns the methods there are.
func Methods() []Method { return slices.Clone(methods) }

// MethodNamed returns the method of a name, and whether there is one.
func MethodNamed(name string) (Method, bool) {
	i := slices.IndexFunc(methods, func(m Method) bool { return m.Name == name })
	if i < 0 {
		return Method{}, false
	}
	return methods[i], true
}

// MethodNames lists the names of the methods for which keep holds, for a person: a, b or c. A
// nil keep keeps all.
func MethodNames(keep func(Method) bool) string {
	var names []string
	for _, m := range methods {
		if keep == nil || keep(m) {
			names = append(names, m.Name)
		}
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// HasGateway reports whether TLS may terminate before the principal.
func (m Method) HasGateway() bool { return m.Gateway != NoGateway }
