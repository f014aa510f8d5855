package serverapi

import (
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/mesh/spire"
)

// AdminCredentials returns credentials for [ClientConfig] over TCP: they present the
// X.509-SVID of svids, whose owner must be an administrator of the server, and accept
// only the SPIRE server of td, by [spire.ServerID] and the bundle of td.
func AdminCredentials(svids x509svid.Source, bundles x509bundle.Source,
	td spiffeid.TrustDomain) credentials.TransportCredentials {
	// The server's certificate has no host name, so its SPIFFE ID is checked instead.
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(svids, bundles, tlsconfig.AuthorizeID(spire.ServerID(td))))
}
