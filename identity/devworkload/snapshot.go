package devworkload

import (
	"crypto/x509"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// issued is the present X.509-SVID of one entry.
type issued struct {
	entry   Entry
	svid    *x509svid.SVID
	signer  *x509.Certificate
	renewAt time.Time
}

// snapshot is what all callers are told at one time. It is never changed.
type snapshot struct {
	// version is 1 for the first and grows by one with each change.
	version uint64
	// svids is in the order of the entries.
	svids []*x509svid.SVID
	own   *spiffebundle.Bundle
	// federated is in the order of trust domains.
	federated []*spiffebundle.Bundle
	// allBundles is Config.AllBundlesName.
	allBundles string
}

func version(snap *snapshot) string { return strconv.FormatUint(snap.version, 10) }

// bundles returns the own and all federated bundles, in the order of their
// trust domains.
func (snap *snapshot) bundles() []*spiffebundle.Bundle {
	all := append([]*spiffebundle.Bundle{snap.own}, snap.federated...)
	slices.SortFunc(all, func(a, b *spiffebundle.Bundle) int { return a.TrustDomain().Compare(b.TrustDomain()) })
	return all
}

// errNoIdentity is what a caller without entries is told (SPIFFE Workload API,
// section 6.1).
var errNoIdentity = status.Error(codes.PermissionDenied, "no identity issued")

const (
	secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	// spiffeValidator is Envoy's certificate validator that keeps the bundles
	// of trust domains apart.
	spiffeValidator = "envoy.tls.cert_validator.spiffe"

	// The names SPIRE gives to secrets beside SPIFFE IDs.
	secretDefaultSVID = "default"
	secretOwnBundle   = "ROOTCA"
	secretAllBundles  = "ALL" // unless Config.AllBundlesName is another
)
