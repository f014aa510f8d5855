package protolimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/argomesh/argomesh/stream/protolimit"
	"github.com/argomesh/argomesh/test/heap"
)

// dense are messages with much of each kind of field.
func dense() map[string]proto.Message {
	entries, bundles := &entryv1.ListEntriesResponse{}, &workload.X509BundlesResponse{Bundles: map[string][]byte{}}
	for i := range 10000 {
		entries.Entries = append(entries.Entries, &types.Entry{
			Id: fmt.Sprint(i), SpiffeId: &types.SPIFFEID{Path: "/a"}, Selectors: []*types.Selector{{Type: "k8s", Value: "ns:web"}}, DnsNames: []string{"a", ""},
		})
		bundles.Bundles[fmt.Sprint(i)] = []byte{1}
	}
	relationships := &trustdomainv1.ListFederationRelationshipsResponse{}
	for range 10000 {
		relationships.FederationRelationships = append(relationships.FederationRelationships, &types.FederationRelationship{
			BundleEndpointProfile: &types.FederationRelationship_HttpsSpiffe{HttpsSpiffe: &types.HTTPSSPIFFEProfile{}},
		})
	}
	return map[string]proto.Message{
		"lists, texts and messages": entries, "a map": bundles, "a oneof": relationships,
		"a long text": &entryv1.ListEntriesResponse{NextPageToken: strings.Repeat("x", 1<<20)},
		"nothing":     &entryv1.ListEntriesResponse{},
	}
}

// What is counted is at least what the decoder takes, and at most twice as much.
func TestCheckCountsWhatIsTaken(t *testing.T) {
	for name, m := range dense() {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		into := m.ProtoReflect().New().Interface()
		took := int(heap.Of(func() { err = (protolimit.Codec{Heap: 1 << 30}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, into) })) //nolint:gosec // some megabytes
		if err != nil || !proto.Equal(m, into) {
			t.Errorf("%s: it comes as another, %v", name, err)
		}
		d := m.ProtoReflect().Descriptor()
		const short = 16 << 10 // what the runtime takes beside it
		if err := protolimit.Check(d, b, took-short); took > short && !errors.Is(err, protolimit.ErrTooLarge) {
			t.Errorf("%s takes %d bytes, and is taken with %d: %v", name, took, took-short, err)
		}
		if err := protolimit.Check(d, b, 2*took+short); err != nil {
			t.Errorf("%s takes %d bytes: %v", name, took, err)
		}
	}
}

// What a codec refuses leaves nothing behind, and what is unknown is passed over.
func TestCodec(t *testing.T) {
	list := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil)
	number := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 1<<16))
	group := protowire.AppendTag(protowire.AppendTag(nil, 1000, protowire.StartGroupType), 1000, protowire.EndGroupType)
	for name, c := range map[string]struct {
		b      []byte
		want   int // entries; below zero for an error
		heavy  bool
		detail string
	}{
		"nothing":              {nil, 0, false, ""},
		"one":                  {list, 1, false, ""},
		"what is unknown":      {append(unknown, list...), 1, false, ""},
		"an unknown group":     {append(group, list...), 1, false, ""},
		"a field as a number":  {append(number, list...), 1, false, ""},
		"too many":             {[]byte(strings.Repeat(string(list), 1000)), -1, true, "ListEntriesResponse.entries"},
		"cut off within a tag": {[]byte{0x80}, -1, false, ""},
		"cut off":              {list[:1], -1, false, ""},
	} {
		m := &entryv1.ListEntriesResponse{}
		err := protolimit.Codec{Heap: 64 << 10}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.b)}, m)
		if (err != nil) != (c.want < 0) || errors.Is(err, protolimit.ErrTooLarge) != c.heavy || err != nil && !strings.Contains(err.Error(), c.detail) {
			t.Errorf("%s: %v", name, err)
		}
		if got := len(m.GetEntries()); got != max(c.want, 0) || len(m.ProtoReflect().GetUnknown()) != 0 {
			t.Errorf("%s: %d entries, %d unknown bytes", name, got, len(m.ProtoReflect().GetUnknown()))
		}
	}
	if err := (protolimit.Codec{Heap: 1}).Unmarshal(nil, "text"); err == nil {
		t.Error("a string is filled")
	}
}

// A message may hold itself: what is nested deeper than the decoder goes is refused before
// the stack grows for it.
func TestCheckRefusesDepth(t *testing.T) {
	nested := func(levels int) []byte { // each is a Value and the ListValue in it
		var parts [][]byte
		length := 0
		for range levels / 2 {
			head := protowire.AppendTag(nil, 1, protowire.BytesType)
			head = protowire.AppendVarint(head, uint64(length)) //nolint:gosec // a length
			length += len(head)
			list := protowire.AppendTag(nil, 6, protowire.BytesType)
			list = protowire.AppendVarint(list, uint64(length)) //nolint:gosec // a length
			length += len(list)
			parts = append(parts, head, list)
		}
		slices.Reverse(parts)
		return bytes.Join(parts, nil)
	}
	for _, c := range []struct {
		levels int
		want   error
	}{{protowire.DefaultRecursionLimit - 2, nil}, {protowire.DefaultRecursionLimit + 2, protolimit.ErrTooDeep}, {1 << 20, protolimit.ErrTooDeep}} {
		b := nested(c.levels)
		if err := protolimit.Check((&structpb.Value{}).ProtoReflect().Descriptor(), b, 1<<30); !errors.Is(err, c.want) {
			t.Errorf("%d levels: %v, want %v", c.levels, err, c.want)
		}
		if err := proto.Unmarshal(b, &structpb.Value{}); (err == nil) != (c.want == nil) {
			t.Errorf("%d levels: protobuf's own decoder says %v", c.levels, err)
		}
	}
}
