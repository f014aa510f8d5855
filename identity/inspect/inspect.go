// Package inspect asks the local Workload API once what it hands out to this process,
// and says what is wrong with it. It is for people and what they call: `agentctl identity
// show` and `doctor` print what it returns. It keeps nothing fresh and makes no
// connections with what it was given; that is identity/workload. Whom the registry of a hub would accept
// is for package fleet to say.
//
// What a process of ours holds, principal or agent diagnoses itself with [DiagnoseHeld], by the same rules.
//
//	offer, err := inspect.Ask(ctx, inspect.Config{Socket: "unix:///run/spire/agent.sock"})
//	for _, f := range inspect.Diagnose(offer, inspect.Expectation{SPIFFEID: agentID, Peers: []spiffeid.TrustDomain{hub}}) {
//		fmt.Println(f.Level, f.About, f.Says, f.Cure)
//	}
package inspect

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config says whom to ask, and for what. Socket is required.
type Config struct {
	// Socket is the address of the Workload API: unix:///absolute/path or
	// tcp://IP:port.
	Socket string
	// Audience is whom JWT-SVIDs are asked for. Empty asks for none.
	Audience string
}

// Offer is what the Workload API hands out at one time. It holds no key and no token.
type Offer struct {
	Socket string `json:"socket"`
	// Asked is when, by our clock.
	Asked time.Time `json:"asked"`
	// SVIDs are in the order of the Workload API, which means nothing.
	SVIDs []SVID `json:"svids"`
	// Bundles are in the order of trust domains.
	Bundles []Bundle `json:"bundles"`
	// JWTSVIDs are those for the audience asked for.
	JWTSVIDs []JWTSVID `json:"jwtSVIDs,omitempty"`
	// JWTBundlesError and JWTSVIDsError say why there are none; empty when all is well.
	JWTBundlesError string `json:"jwtBundlesError,omitempty"`
	JWTSVIDsError   string `json:"jwtSVIDsError,omitempty"`

	x509 *x509bundle.Set
	// noJWT says that JWT bundles were not asked for, so that none is missed.
	noJWT bool
}

// SVID is one X.509-SVID.
type SVID struct {
	SPIFFEID  string    `json:"spiffeID"`
	Hint      string    `json:"hint,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	// Chain is how many certificates it has, the leaf included.
	Chain    int      `json:"chain"`
	Key      string   `json:"key"`
	DNSNames []string `json:"dnsNames,omitempty"`
	Issuer   string   `json:"issuer,omitempty"`

	id    spiffeid.ID
	certs []*x509.Certificate
}

// ID returns the SPIFFE ID.
func (s SVID) ID() spiffeid.ID { return s.id }

// Bundle is what speaks for one trust domain.
type Bundle struct {
	TrustDomain string `json:"trustDomain"`
	// Own tells the trust domain of our SVIDs from federated ones.
	Own   bool   `json:"own"`
	Roots []Root `json:"roots"`
	// JWTKeys are the IDs of keys that sign JWT-SVIDs, in order.
	JWTKeys []string `json:"jwtKeys"`

	td spiffeid.TrustDomain
}

// Root is a signing certificate of a trust domain.
type Root struct {
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
}

// JWTSVID is one JWT-SVID, without the token.
type JWTSVID struct {
	SPIFFEID string    `json:"spiffeID"`
	Hint     string    `json:"hint,omitempty"`
	Audience []string  `json:"audience"`
	Expires  time.Time `json:"expires"`
}

// Kinds of error of [Ask] and [X509Context]. Each comes with its cure in [Cure].
var (
	// ErrSocket says that the address cannot be one of a Workload API.
	ErrSocket = errors.New("not an address of a Workload API")
	// ErrAbsent says that there is no socket.
	ErrAbsent = errors.New("no Workload API at the socket")
	// ErrNobody says that no one serves the socket.
	ErrNobody = errors.New("nothing listens on the Workload API socket")
	// ErrForbidden says that we may not open the socket.
	ErrForbidden = errors.New("may not open the Workload API socket")
	// ErrNoIdentity says that the Workload API knows no identity for this process.
	ErrNoIdentity = errors.New("the Workload API issues no identity to this process")
	// ErrNotWorkloadAPI says that someone else answers.
	ErrNotWorkloadAPI = errors.New("the server on the socket is not a Workload API")
	// ErrNoAnswer says that there is no answer in time.
	ErrNoAnswer = errors.New("the Workload API does not answer")
	// ErrUnreadable says that what it sent cannot be read.
	ErrUnreadable = errors.New("the Workload API sent what cannot be read")
)

// cures are in the order of the kinds.
var cures = []struct {
	kind error
	cure string
}{
	{ErrSocket, "write unix:///absolute/path or tcp://127.0.0.1:port"},
	{ErrAbsent, "start the SPIRE agent, mount its socket, or name another with --socket"},
	{ErrNobody, "start the SPIRE agent, or name another socket with --socket"},
	{ErrForbidden, "correct the mode or owner of the socket and its folder, or run as the agent does"},
	{ErrNoIdentity,
		"register this process with SPIRE: its selectors must all be its own, and the parent the SPIRE agent of this node (agentctl identity register)"},
	{ErrNotWorkloadAPI, "name the socket of the SPIRE agent with --socket"},
	{ErrNoAnswer, "check the SPIRE agent and its log: it may still be attesting this process"},
	{ErrUnreadable, "check the log of the SPIRE agent, and that it is a supported release"},
}

// Cure returns one line that says what helps against an error of [Ask] or [X509Context];
// empty for any other.
func Cure(err error) string {
	for _, c := range cures {
		if errors.Is(err, c.kind) {
			return c.cure
		}
	}
	return ""
}

// Ask returns what the Workload API hands out now. It waits for the first answer until
// ctx is done. The error is of one of the kinds above; that JWT-SVIDs or their bundles
// cannot be had is no error, and said in the offer.
func Ask(ctx context.Context, cfg Config) (Offer, error) {
	client, x509Context, err := fetch(ctx, cfg.Socket)
	if err != nil {
		return Offer{}, err
	}
	defer func() { _ = client.Close() }() // all was read
	asked := time.Now()
	jwt, err := client.FetchJWTBundles(ctx)
	if err != nil {
		jwt = jwtbundle.NewSet()
	}
	offer := describe(x509Context, jwt, asked)
	offer.Socket = cfg.Socket
	if err != nil {
		offer.JWTBundlesError = kindOf(err).Error()
	}
	if cfg.Audience == "" {
		return offer, nil
	}
	tokens, err := client.FetchJWTSVIDs(ctx, jwtsvid.Params{Audience: cfg.Audience})
	if err != nil {
		offer.JWTSVIDsError = kindOf(err).Error()
	}
	for _, svid := range tokens {
		offer.JWTSVIDs = append(offer.JWTSVIDs,
			JWTSVID{SPIFFEID: svid.ID.String(), Hint: svid.Hint, Audience: svid.Audience, Expires: svid.Expiry})
	}
	return offer, nil
}

// describe returns what was handed out until a time. jwt is nil where JWT bundles were not asked for.
func describe(x *workloadapi.X509Context, jwt *jwtbundle.Set, at time.Time) Offer {
	offer := Offer{Asked: at, x509: x.Bundles, noJWT: jwt == nil}
	for _, svid := range x.SVIDs {
		offer.SVIDs = append(offer.SVIDs, describeSVID(svid))
	}
	if jwt == nil {
		jwt = jwtbundle.NewSet()
	}
	offer.Bundles = describeBundles(x, jwt)
	return offer
}

// X509Context returns the X.509-SVIDs that the Workload API hands out now, with their
// keys, and the bundles, for one who uses them at once. It waits and fails as [Ask] does.
func X509Context(ctx context.Context, socket string) (*workloadapi.X509Context, error) {
	client, x509Context, err := fetch(ctx, socket)
	if err != nil {
		return nil, err
	}
	return x509Context, client.Close()
}

// fetch returns a client of the Workload API, which the caller closes, and its first
// answer.
func fetch(ctx context.Context, socket string) (*workloadapi.Client, *workloadapi.X509Context, error) {
	if err := reach(ctx, socket); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", socket, err)
	}
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(socket))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", socket, ErrSocket, err)
	}
	x509Context, err := client.FetchX509Context(ctx)
	if err != nil {
		_ = client.Close() // nothing came
		return nil, nil, fmt.Errorf("%s: %w", socket, kindOf(err))
	}
	return client, x509Context, nil
}

// reach opens the socket once, since gRPC tells why it could not as text only.
func reach(ctx context.Context, socket string) error {
	if err := workloadapi.ValidateAddress(socket); err != nil {
		return fmt.Errorf("%w: %w", ErrSocket, err)
	}
	network, address, _ := strings.Cut(socket, "://")
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		return conn.Close()
	}
	for _, known := range []struct{ cause, kind error }{
		{fs.ErrNotExist, ErrAbsent}, {syscall.ECONNREFUSED, ErrNobody}, {fs.ErrPermission, ErrForbidden},
	} {
		if errors.Is(err, known.cause) {
			return known.kind
		}
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// kindOf gives an error of go-spiffe's client its kind.
func kindOf(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	kind := ErrNoAnswer
	switch st.Code() {
	case codes.PermissionDenied:
		kind = ErrNoIdentity
	case codes.InvalidArgument, codes.Unimplemented:
		kind = ErrNotWorkloadAPI
	}
	return fmt.Errorf("%w: %s", kind, st.Message())
}

func describeSVID(svid *x509svid.SVID) SVID {
	leaf := svid.Certificates[0]
	return SVID{
		SPIFFEID: svid.ID.String(), Hint: svid.Hint, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
		Chain: len(svid.Certificates), Key: describeKey(leaf.PublicKey), DNSNames: leaf.DNSNames,
		Issuer: leaf.Issuer.String(),
		id:     svid.ID, certs: svid.Certificates,
	}
}

func describeKey(key any) string {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + key.Curve.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", key.N.BitLen())
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return "unknown"
}

// describeBundles joins the bundles for both kinds of SVID.
func describeBundles(x *workloadapi.X509Context, jwt *jwtbundle.Set) []Bundle {
	byName := map[string]Bundle{}
	at := func(td spiffeid.TrustDomain) Bundle {
		if b, ok := byName[td.Name()]; ok {
			return b
		}
		own := slices.ContainsFunc(x.SVIDs, func(s *x509svid.SVID) bool { return s.ID.TrustDomain() == td })
		return Bundle{TrustDomain: td.Name(), Own: own, td: td, Roots: []Root{}, JWTKeys: []string{}}
	}
	for _, b := range x.Bundles.Bundles() {
		d := at(b.TrustDomain())
		for _, root := range b.X509Authorities() {
			d.Roots = append(d.Roots, Root{Subject: root.Subject.String(), NotAfter: root.NotAfter})
		}
		byName[d.TrustDomain] = d
	}
	for _, b := range jwt.Bundles() {
		d := at(b.TrustDomain())
		d.JWTKeys = slices.Sorted(maps.Keys(b.JWTAuthorities()))
		byName[d.TrustDomain] = d
	}
	return slices.SortedFunc(maps.Values(byName),
		func(a, b Bundle) int { return strings.Compare(a.TrustDomain, b.TrustDomain) })
}
