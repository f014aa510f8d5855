package workload

import (
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"

	"github.com/argomesh/argomesh/identity"
)

// withoutUnusable takes the authorities out of bundles that may not be computed with, and counts them: those of
// a trust domain that federates with ours are that one's to choose. No one else has the bundles yet.
func withoutUnusable(s *Source, bundles *x509bundle.Set) {
	for _, b := range bundles.Bundles() {
		dropped := 0
		for _, root := range b.X509Authorities() {
			if !identity.IsUsableKey(root.PublicKey) {
				b.RemoveX509Authority(root)
				dropped++
			}
		}
		logUnusable(s, b.TrustDomain().Name(), dropped)
	}
}

// withoutUnusableJWT is withoutUnusable of JWT bundles.
func withoutUnusableJWT(s *Source, bundles *jwtbundle.Set) {
	for _, b := range bundles.Bundles() {
		dropped := 0
		for id, key := range b.JWTAuthorities() {
			if !identity.IsUsableKey(key) {
				b.RemoveJWTAuthority(id)
				dropped++
			}
		}
		logUnusable(s, b.TrustDomain().Name(), dropped)
	}
}

func logUnusable(s *Source, trustDomain string, dropped int) {
	if dropped == 0 {
		return
	}
	s.metrics.unusable.Add(float64(dropped))
	log := s.log.Sample(s.unusableSampler)
	log.Warn().Str("trust_domain", trustDomain).Int("authorities", dropped).Int("most_bits", identity.MaxRSABits).
		Msg("authorities of a trust bundle are left out, since their RSA keys are too long: have that trust domain use shorter ones")
}
