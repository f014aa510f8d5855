package serverapi

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/argomesh/argomesh/mesh/spire"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
)

// This is the one place where values become messages of the SPIRE server and back.

func idToWire(id spiffeid.ID) *types.SPIFFEID {
	return &types.SPIFFEID{TrustDomain: id.TrustDomain().Name(), Path: id.Path()}
}

func idFromWire(m *types.SPIFFEID) (spiffeid.ID, error) {
	td, err := spiffeid.TrustDomainFromString(m.GetTrustDomain())
	if err != nil {
		return spiffeid.ID{}, err
	}
	return spiffeid.FromPath(td, m.GetPath())
}

func entryToWire(e spire.Entry) *types.Entry {
	m := &types.Entry{
		Id: e.ID, SpiffeId: idToWire(e.SPIFFEID), ParentId: idToWire(e.ParentID),
		X509SvidTtl: wireSeconds(e.X509TTL), JwtSvidTtl: wireSeconds(e.JWTTTL),
		DnsNames: e.DNSNames, Hint: e.Hint, Admin: e.Admin, Downstream: e.Downstream, StoreSvid: e.StoreSVID,
	}
	if !e.ExpiresAt.IsZero() {
		m.ExpiresAt = e.ExpiresAt.Unix()
	}
	for _, s := range e.Selectors {
		m.Selectors = append(m.Selectors, &types.Selector{Type: s.Type, Value: s.Value})
	}
	for _, td := range e.FederatesWith {
		m.FederatesWith = append(m.FederatesWith, td.Name())
	}
	return m
}

// wireSeconds returns a TTL that Entry.check has found to fit.
func wireSeconds(d time.Duration) int32 {
	return int32(d / time.Second) //nolint:gosec // checked to fit before it is sent
}

// entryFromWire returns the entry of a server's answer. The error wraps ErrReply.
func entryFromWire(m *types.Entry) (spire.Entry, error) {
	bad := func(field string, err error) (spire.Entry, error) {
		return spire.Entry{}, fmt.Errorf("entry %q: %s: %w: %w", m.GetId(), field, err, spire.ErrReply)
	}
	if m.GetId() == "" {
		return spire.Entry{}, fmt.Errorf("entry without id: %w", spire.ErrReply)
	}
	id, err := idFromWire(m.GetSpiffeId())
	if err != nil {
		return bad("spiffe_id", err)
	}
	parent, err := idFromWire(m.GetParentId())
	if err != nil {
		return bad("parent_id", err)
	}
	e := spire.Entry{
		ID: m.GetId(), SPIFFEID: id, ParentID: parent,
		X509TTL: time.Duration(m.GetX509SvidTtl()) * time.Second, JWTTTL: time.Duration(m.GetJwtSvidTtl()) * time.Second,
		DNSNames: m.GetDnsNames(), Hint: m.GetHint(), Admin: m.GetAdmin(), Downstream: m.GetDownstream(),
		StoreSVID: m.GetStoreSvid(),
	}
	if at := m.GetExpiresAt(); at != 0 {
		e.ExpiresAt = time.Unix(at, 0).UTC()
	}
	for _, s := range m.GetSelectors() {
		selector := spire.Selector{Type: s.GetType(), Value: s.GetValue()}
		if err := selector.Check(); err != nil {
			return bad("selectors", err)
		}
		e.Selectors = append(e.Selectors, selector)
	}
	for _, name := range m.GetFederatesWith() {
		td, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return bad("federates_with", err)
		}
		e.FederatesWith = append(e.FederatesWith, td)
	}
	return e.Canonical(), nil
}

// setMask sets the fields of mask that are named as in entryFields.
func setMask(mask *types.EntryMask, fields ...string) *types.EntryMask {
	byName := map[string]*bool{
		"spiffe_id": &mask.SpiffeId, "parent_id": &mask.ParentId, "selectors": &mask.Selectors,
		"x509_svid_ttl": &mask.X509SvidTtl, "jwt_svid_ttl": &mask.JwtSvidTtl, "federates_with": &mask.FederatesWith,
		"dns_names": &mask.DnsNames, "hint": &mask.Hint, "admin": &mask.Admin, "downstream": &mask.Downstream,
		"store_svid": &mask.StoreSvid, "expires_at": &mask.ExpiresAt,
	}
	for _, name := range fields {
		*byName[name] = true
	}
	return mask
}

// knownFields is the mask of all that Entry has.
func knownFields() *types.EntryMask {
	return setMask(&types.EntryMask{}, spire.EntryFields()...)
}

func bundleToWire(b *spiffebundle.Bundle) (*types.Bundle, error) {
	m := &types.Bundle{TrustDomain: b.TrustDomain().Name()}
	if d, ok := b.RefreshHint(); ok {
		m.RefreshHint = int64(d / time.Second)
	}
	if n, ok := b.SequenceNumber(); ok {
		m.SequenceNumber = n
	}
	for _, root := range b.X509Authorities() {
		m.X509Authorities = append(m.X509Authorities, &types.X509Certificate{Asn1: root.Raw})
	}
	keys := b.JWTAuthorities()
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		der, err := x509.MarshalPKIXPublicKey(keys[id])
		if err != nil {
			return nil, fmt.Errorf("bundle of %s: jwt key %q: %w: %w", b.TrustDomain(), id, err, spire.ErrInvalid)
		}
		m.JwtAuthorities = append(m.JwtAuthorities, &types.JWTKey{PublicKey: der, KeyId: id})
	}
	return m, nil
}

// keyRoom is how many bytes of certificates and keys of one answer may yet be read.
type keyRoom int

func newKeyRoom() *keyRoom {
	room := keyRoom(maxReplyKeyBytes)
	return &room
}

func (r *keyRoom) reserve(n int) error {
	if *r -= keyRoom(n); *r < 0 {
		return fmt.Errorf("the answer has more than %d KiB of certificates and keys", maxReplyKeyBytes>>10)
	}
	return nil
}

// bundleFromWire returns the bundle of a server's answer, in which there is that room. The
// error wraps ErrReply.
func bundleFromWire(m *types.Bundle, room *keyRoom) (*spiffebundle.Bundle, error) {
	bad := func(err error) (*spiffebundle.Bundle, error) {
		return nil, fmt.Errorf("bundle of %q: %w: %w", m.GetTrustDomain(), err, spire.ErrReply)
	}
	td, err := spiffeid.TrustDomainFromString(m.GetTrustDomain())
	if err != nil {
		return bad(err)
	}
	b := spiffebundle.New(td)
	if hint := m.GetRefreshHint(); hint > 0 && hint <= int64(spire.MaxRefreshHint/time.Second) {
		b.SetRefreshHint(time.Duration(hint) * time.Second)
	}
	if n := m.GetSequenceNumber(); n != 0 {
		b.SetSequenceNumber(n)
	}
	for _, root := range m.GetX509Authorities() {
		if err := room.reserve(len(root.GetAsn1())); err != nil {
			return bad(err)
		}
		certs, err := x509.ParseCertificates(root.GetAsn1())
		if err != nil {
			return bad(err)
		}
		for _, cert := range certs {
			b.AddX509Authority(cert)
		}
	}
	for _, key := range m.GetJwtAuthorities() {
		if err := room.reserve(len(key.GetPublicKey())); err != nil {
			return bad(err)
		}
		public, err := x509.ParsePKIXPublicKey(key.GetPublicKey())
		if err != nil {
			return bad(err)
		}
		if err := b.AddJWTAuthority(key.GetKeyId(), public); err != nil {
			return bad(err)
		}
	}
	return b, nil
}

func federationToWire(f spire.Federation) (*types.FederationRelationship, error) {
	m := &types.FederationRelationship{TrustDomain: f.TrustDomain.Name(), BundleEndpointUrl: f.EndpointURL}
	if f.EndpointID.IsZero() {
		m.BundleEndpointProfile = &types.FederationRelationship_HttpsWeb{HttpsWeb: &types.HTTPSWebProfile{}}
	} else {
		m.BundleEndpointProfile = &types.FederationRelationship_HttpsSpiffe{
			HttpsSpiffe: &types.HTTPSSPIFFEProfile{EndpointSpiffeId: f.EndpointID.String()},
		}
	}
	if f.Bundle == nil {
		return m, nil
	}
	var err error
	m.TrustDomainBundle, err = bundleToWire(f.Bundle)
	return m, err
}

// federationFromWire returns the relationship of a server's answer, in which there is that
// room. The error wraps ErrReply.
func federationFromWire(m *types.FederationRelationship, room *keyRoom) (spire.Federation, error) {
	bad := func(err error) (spire.Federation, error) {
		return spire.Federation{}, fmt.Errorf("federation with %q: %w: %w", m.GetTrustDomain(), err, spire.ErrReply)
	}
	td, err := spiffeid.TrustDomainFromString(m.GetTrustDomain())
	if err != nil {
		return bad(err)
	}
	f := spire.Federation{TrustDomain: td, EndpointURL: m.GetBundleEndpointUrl()}
	if profile := m.GetHttpsSpiffe(); profile != nil {
		if f.EndpointID, err = spiffeid.FromString(profile.GetEndpointSpiffeId()); err != nil {
			return bad(err)
		}
	}
	if m.GetTrustDomainBundle() == nil {
		return f, nil
	}
	if f.Bundle, err = bundleFromWire(m.GetTrustDomainBundle(), room); err != nil {
		return bad(err)
	}
	return f, nil
}
