package workload

import (
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc/mem"

	"github.com/argomesh/argomesh/stream/protolimit"
)

// maxPartnerBytes bounds the bundle of one trust domain that federates with ours, in DER or JSON. It is that
// one's to choose, and crypto/x509 makes up to eighty times its bytes of a certificate. It has room for a
// hundred roots, as mesh/spire has for what it fetches.
const maxPartnerBytes = 96 << 10

// replyCodec decodes answers of the Workload API. They are counted before, and long bundles of partners are left
// out before their certificates are read: their trust domains alone are not trusted then.
type replyCodec struct {
	protolimit.Codec
	source *Source
}

// Unmarshal implements encoding.CodecV2.
func (c replyCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if err := c.Codec.Unmarshal(data, v); err != nil {
		return err
	}
	switch answer := v.(type) {
	case *workload.X509SVIDResponse:
		withoutLong(c.source, answer.GetFederatedBundles())
	case *workload.JWTBundlesResponse:
		withoutLong(c.source, answer.GetBundles())
	}
	return nil
}

// withoutLong takes bundles out that are too long, and counts them.
func withoutLong(s *Source, bundles map[string][]byte) {
	for trustDomain, bundle := range bundles {
		if len(bundle) <= maxPartnerBytes {
			continue
		}
		delete(bundles, trustDomain)
		s.metrics.longBundles.Inc()
		log := s.log.Sample(s.unusableSampler)
		log.Warn().Str("trust_domain", trustDomain).Int("bytes", len(bundle)).Int("most_bytes", maxPartnerBytes).
			Msg("the trust bundle of a trust domain is left out, since it is too long: have that trust domain publish fewer or shorter authorities")
	}
}
