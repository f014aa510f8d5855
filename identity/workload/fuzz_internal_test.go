package workload

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream/protolimit"
	"github.com/argomesh/argomesh/test/heap"
)

// Whatever an answer of the Workload API is, it takes little before it is refused, and no partner's bundle in it is
// longer than one may be.
func FuzzReplies(f *testing.F) {
	source, err := New(Config{Socket: "unix:///run/none", Metrics: prometheus.NewRegistry()})
	if err != nil {
		f.Fatal(err)
	}
	for _, bundles := range []map[string][]byte{nil, {"spiffe://usual.test": []byte("x")}, {"spiffe://long.test": make([]byte, maxPartnerBytes+1), "": nil}} {
		for _, m := range []proto.Message{&workload.X509SVIDResponse{FederatedBundles: bundles}, &workload.JWTBundlesResponse{Bundles: bundles}} {
			raw, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	codec := replyCodec{protolimit.Codec{Heap: maxReplyHeap}, source}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var svids workload.X509SVIDResponse
		var keys workload.JWTBundlesResponse
		took := heap.Of(func() {
			for _, m := range []proto.Message{&svids, &keys} {
				if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m) != nil {
					proto.Reset(m) // what is refused is not used
				}
			}
		})
		if most := uint64(128*len(raw) + 256<<10); took > most {
			t.Errorf("%d bytes take %d of heap, want %d at most", len(raw), took, most)
		}
		for _, bundles := range []map[string][]byte{svids.GetFederatedBundles(), keys.GetBundles()} {
			for trustDomain, bundle := range bundles {
				if len(bundle) > maxPartnerBytes {
					t.Errorf("the bundle of %q has %d bytes, want %d at most", trustDomain, len(bundle), maxPartnerBytes)
				}
			}
		}
	})
}
