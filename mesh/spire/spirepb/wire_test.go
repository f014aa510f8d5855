package spirepb_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/argomesh/argomesh/mesh/spire/spirepb"
)

// golden has, for each message, the bytes of each field alone, as SPIRE 1.15 reads
// and writes them. They were written by hand from its API definitions: a field's tag is
// number<<3 | 0 for numbers and booleans, | 2 for all else. Strings are "a", bytes ff,
// booleans true, 32-bit numbers 5, 64-bit ones 1<<33 (8080808020), enums 1, messages
// empty, and repeated fields have one element.
var golden = map[string]string{
	"spire.api.types.SPIFFEID":           "trust_domain=0a0161 path=120161",
	"spire.api.types.Selector":           "type=0a0161 value=120161",
	"spire.api.types.SelectorMatch":      "selectors=0a00 match=1001",
	"spire.api.types.FederatesWithMatch": "trust_domains=0a0161 match=1001",
	"spire.api.types.Status":             "code=0805 message=120161",
	"spire.api.types.Entry": "id=0a0161 spiffe_id=1200 parent_id=1a00 selectors=2200 x509_svid_ttl=2805 federates_with=320161 admin=3801 " +
		"downstream=4001 expires_at=488080808020 dns_names=520161 revision_number=588080808020 store_svid=6001 jwt_svid_ttl=6805 " +
		"hint=720161 created_at=788080808020 additional_attributes=820100",
	"spire.api.types.Entry.AdditionalAttributes": "disable_x509_svid_prefetch=0801 jwt_svid_include_jti=1001",
	"spire.api.types.EntryMask": "spiffe_id=1001 parent_id=1801 selectors=2001 x509_svid_ttl=2801 federates_with=3001 admin=3801 downstream=4001 " +
		"expires_at=4801 dns_names=5001 revision_number=5801 store_svid=6001 jwt_svid_ttl=6801 hint=7001 created_at=7801 additional_attributes=800101",
	"spire.api.types.X509Certificate": "asn1=0a01ff tainted=1001",
	"spire.api.types.JWTKey":          "public_key=0a01ff key_id=120161 expires_at=188080808020 tainted=2001",
	"spire.api.types.WITKey":          "public_key=0a01ff key_id=120161 expires_at=188080808020 tainted=2001",
	"spire.api.types.Bundle": "trust_domain=0a0161 x509_authorities=1200 jwt_authorities=1a00 refresh_hint=208080808020 " +
		"sequence_number=288080808020 wit_authorities=3200",
	"spire.api.types.BundleMask":         "x509_authorities=1001 jwt_authorities=1801 refresh_hint=2001 sequence_number=2801 wit_authorities=3001",
	"spire.api.types.HTTPSWebProfile":    "",
	"spire.api.types.HTTPSSPIFFEProfile": "endpoint_spiffe_id=0a0161",
	"spire.api.types.FederationRelationship": "trust_domain=0a0161 bundle_endpoint_url=120161 https_web=1a00 https_spiffe=2200 " +
		"trust_domain_bundle=2a00",
	"spire.api.types.FederationRelationshipMask": "bundle_endpoint_url=0801 bundle_endpoint_profile=1001 trust_domain_bundle=1801",

	"spire.api.server.entry.v1.CountEntriesRequest": "filter=0a00",
	"spire.api.server.entry.v1.CountEntriesRequest.Filter": "by_spiffe_id=0a00 by_parent_id=1200 by_selectors=1a00 by_federates_with=2200 " +
		"by_hint=2a00 by_downstream=3200",
	"spire.api.server.entry.v1.CountEntriesResponse": "count=0805",
	"spire.api.server.entry.v1.ListEntriesRequest":   "filter=0a00 output_mask=1200 page_size=1805 page_token=220161",
	"spire.api.server.entry.v1.ListEntriesRequest.Filter": "by_spiffe_id=0a00 by_parent_id=1200 by_selectors=1a00 by_federates_with=2200 " +
		"by_hint=2a00 by_downstream=3200",
	"spire.api.server.entry.v1.ListEntriesResponse":             "entries=0a00 next_page_token=120161",
	"spire.api.server.entry.v1.GetEntryRequest":                 "id=0a0161 output_mask=1200",
	"spire.api.server.entry.v1.BatchCreateEntryRequest":         "entries=0a00 output_mask=1200",
	"spire.api.server.entry.v1.BatchCreateEntryResponse":        "results=0a00",
	"spire.api.server.entry.v1.BatchCreateEntryResponse.Result": "status=0a00 entry=1200",
	"spire.api.server.entry.v1.BatchUpdateEntryRequest":         "entries=0a00 input_mask=1200 output_mask=1a00",
	"spire.api.server.entry.v1.BatchUpdateEntryResponse":        "results=0a00",
	"spire.api.server.entry.v1.BatchUpdateEntryResponse.Result": "status=0a00 entry=1200",
	"spire.api.server.entry.v1.BatchDeleteEntryRequest":         "ids=0a0161",
	"spire.api.server.entry.v1.BatchDeleteEntryResponse":        "results=0a00",
	"spire.api.server.entry.v1.BatchDeleteEntryResponse.Result": "status=0a00 id=120161",

	"spire.api.server.bundle.v1.GetBundleRequest":                          "output_mask=0a00",
	"spire.api.server.bundle.v1.ListFederatedBundlesRequest":               "output_mask=0a00 page_size=1005 page_token=1a0161",
	"spire.api.server.bundle.v1.ListFederatedBundlesResponse":              "bundles=0a00 next_page_token=120161",
	"spire.api.server.bundle.v1.GetFederatedBundleRequest":                 "trust_domain=0a0161 output_mask=1200",
	"spire.api.server.bundle.v1.BatchCreateFederatedBundleRequest":         "bundle=0a00 output_mask=1200",
	"spire.api.server.bundle.v1.BatchCreateFederatedBundleResponse":        "results=0a00",
	"spire.api.server.bundle.v1.BatchCreateFederatedBundleResponse.Result": "status=0a00 bundle=1200",
	"spire.api.server.bundle.v1.BatchUpdateFederatedBundleRequest":         "bundle=0a00 input_mask=1200 output_mask=1a00",
	"spire.api.server.bundle.v1.BatchUpdateFederatedBundleResponse":        "results=0a00",
	"spire.api.server.bundle.v1.BatchUpdateFederatedBundleResponse.Result": "status=0a00 bundle=1200",
	"spire.api.server.bundle.v1.BatchSetFederatedBundleRequest":            "bundle=0a00 output_mask=1200",
	"spire.api.server.bundle.v1.BatchSetFederatedBundleResponse":           "results=0a00",
	"spire.api.server.bundle.v1.BatchSetFederatedBundleResponse.Result":    "status=0a00 bundle=1200",
	"spire.api.server.bundle.v1.BatchDeleteFederatedBundleRequest":         "trust_domains=0a0161 mode=1001",
	"spire.api.server.bundle.v1.BatchDeleteFederatedBundleResponse":        "results=0a00",
	"spire.api.server.bundle.v1.BatchDeleteFederatedBundleResponse.Result": "status=0a00 trust_domain=120161",

	"spire.api.server.trustdomain.v1.ListFederationRelationshipsRequest":               "output_mask=0a00 page_size=1005 page_token=1a0161",
	"spire.api.server.trustdomain.v1.ListFederationRelationshipsResponse":              "federation_relationships=0a00 next_page_token=120161",
	"spire.api.server.trustdomain.v1.GetFederationRelationshipRequest":                 "trust_domain=0a0161 output_mask=1200",
	"spire.api.server.trustdomain.v1.BatchCreateFederationRelationshipRequest":         "federation_relationships=0a00 output_mask=1200",
	"spire.api.server.trustdomain.v1.BatchCreateFederationRelationshipResponse":        "results=0a00",
	"spire.api.server.trustdomain.v1.BatchCreateFederationRelationshipResponse.Result": "status=0a00 federation_relationship=1200",
	"spire.api.server.trustdomain.v1.BatchUpdateFederationRelationshipRequest":         "federation_relationships=0a00 input_mask=1200 output_mask=1a00",
	"spire.api.server.trustdomain.v1.BatchUpdateFederationRelationshipResponse":        "results=0a00",
	"spire.api.server.trustdomain.v1.BatchUpdateFederationRelationshipResponse.Result": "status=0a00 federation_relationship=1200",
	"spire.api.server.trustdomain.v1.BatchDeleteFederationRelationshipRequest":         "trust_domains=0a0161",
	"spire.api.server.trustdomain.v1.BatchDeleteFederationRelationshipResponse":        "results=0a00",
	"spire.api.server.trustdomain.v1.BatchDeleteFederationRelationshipResponse.Result": "status=0a00 trust_domain=120161",
	"spire.api.server.trustdomain.v1.RefreshBundleRequest":                             "trust_domain=0a0161",
}

// enums are SPIRE's names by their numbers, in order.
var enums = map[string]string{
	"spire.api.types.SelectorMatch.MatchBehavior":                       "MATCH_EXACT MATCH_SUBSET MATCH_SUPERSET MATCH_ANY",
	"spire.api.types.FederatesWithMatch.MatchBehavior":                  "MATCH_EXACT MATCH_SUBSET MATCH_SUPERSET MATCH_ANY",
	"spire.api.server.bundle.v1.BatchDeleteFederatedBundleRequest.Mode": "RESTRICT DELETE DISSOCIATE",
}

// methods are the paths that a SPIRE server answers, with request and answer.
var methods = map[string]string{
	"/spire.api.server.entry.v1.Entry/CountEntries":                                  "CountEntriesRequest CountEntriesResponse",
	"/spire.api.server.entry.v1.Entry/ListEntries":                                   "ListEntriesRequest ListEntriesResponse",
	"/spire.api.server.entry.v1.Entry/GetEntry":                                      "GetEntryRequest Entry",
	"/spire.api.server.entry.v1.Entry/BatchCreateEntry":                              "BatchCreateEntryRequest BatchCreateEntryResponse",
	"/spire.api.server.entry.v1.Entry/BatchUpdateEntry":                              "BatchUpdateEntryRequest BatchUpdateEntryResponse",
	"/spire.api.server.entry.v1.Entry/BatchDeleteEntry":                              "BatchDeleteEntryRequest BatchDeleteEntryResponse",
	"/spire.api.server.bundle.v1.Bundle/GetBundle":                                   "GetBundleRequest Bundle",
	"/spire.api.server.bundle.v1.Bundle/ListFederatedBundles":                        "ListFederatedBundlesRequest ListFederatedBundlesResponse",
	"/spire.api.server.bundle.v1.Bundle/GetFederatedBundle":                          "GetFederatedBundleRequest Bundle",
	"/spire.api.server.bundle.v1.Bundle/BatchCreateFederatedBundle":                  "BatchCreateFederatedBundleRequest BatchCreateFederatedBundleResponse",
	"/spire.api.server.bundle.v1.Bundle/BatchUpdateFederatedBundle":                  "BatchUpdateFederatedBundleRequest BatchUpdateFederatedBundleResponse",
	"/spire.api.server.bundle.v1.Bundle/BatchSetFederatedBundle":                     "BatchSetFederatedBundleRequest BatchSetFederatedBundleResponse",
	"/spire.api.server.bundle.v1.Bundle/BatchDeleteFederatedBundle":                  "BatchDeleteFederatedBundleRequest BatchDeleteFederatedBundleResponse",
	"/spire.api.server.trustdomain.v1.TrustDomain/ListFederationRelationships":       "ListFederationRelationshipsRequest ListFederationRelationshipsResponse",
	"/spire.api.server.trustdomain.v1.TrustDomain/GetFederationRelationship":         "GetFederationRelationshipRequest FederationRelationship",
	"/spire.api.server.trustdomain.v1.TrustDomain/BatchCreateFederationRelationship": "BatchCreateFederationRelationshipRequest BatchCreateFederationRelationshipResponse",
	"/spire.api.server.trustdomain.v1.TrustDomain/BatchUpdateFederationRelationship": "BatchUpdateFederationRelationshipRequest BatchUpdateFederationRelationshipResponse",
	"/spire.api.server.trustdomain.v1.TrustDomain/BatchDeleteFederationRelationship": "BatchDeleteFederationRelationshipRequest BatchDeleteFederationRelationshipResponse",
	"/spire.api.server.trustdomain.v1.TrustDomain/RefreshBundle":                     "RefreshBundleRequest Empty",
}

func TestGoldenFields(t *testing.T) {
	got := map[string]string{}
	gotEnums := map[string]string{}
	var walk func(messages protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			m := messages.Get(i)
			got[string(m.FullName())] = fieldsOf(t, m)
			listEnums(gotEnums, m.Enums())
			walk(m.Messages())
		}
	}
	for _, file := range files() {
		walk(file.Messages())
		listEnums(gotEnums, file.Enums())
	}
	if diff := cmp.Diff(golden, got); diff != "" {
		t.Errorf("fields (-SPIRE's +ours):\n%s", diff)
	}
	if diff := cmp.Diff(enums, gotEnums); diff != "" {
		t.Errorf("enums (-SPIRE's +ours):\n%s", diff)
	}
}

func TestGoldenMethods(t *testing.T) {
	got := map[string]string{}
	for _, file := range files() {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				if m.IsStreamingClient() || m.IsStreamingServer() {
					t.Errorf("%s streams", m.FullName())
				}
				got[fmt.Sprintf("/%s/%s", service.FullName(), m.Name())] = fmt.Sprintf("%s %s", m.Input().Name(), m.Output().Name())
			}
		}
	}
	if diff := cmp.Diff(methods, got); diff != "" {
		t.Errorf("methods (-SPIRE's +ours):\n%s", diff)
	}
}

// An entry with everything set, written by hand in the order of its numbers.
func TestGoldenEntry(t *testing.T) {
	entry := &spirepb.Entry{
		Id: "e", SpiffeId: &spirepb.SPIFFEID{TrustDomain: "a.b", Path: "/w"}, ParentId: &spirepb.SPIFFEID{TrustDomain: "a.b", Path: "/n"},
		Selectors:   []*spirepb.Selector{{Type: "k8s", Value: "ns:x"}, {Type: "k8s", Value: "sa:y"}},
		X509SvidTtl: 3600, FederatesWith: []string{"c.d", "e.f"}, Admin: true, Downstream: true, ExpiresAt: 1 << 33,
		DnsNames: []string{"n.x"}, RevisionNumber: 3, StoreSvid: true, JwtSvidTtl: 300, Hint: "h", CreatedAt: 7,
		AdditionalAttributes: &spirepb.Entry_AdditionalAttributes{DisableX509SvidPrefetch: true, JwtSvidIncludeJti: true},
	}
	const want = "0a0165" + "12090a03612e6212022f77" + "1a090a03612e6212022f6e" +
		"220b0a036b387312046e733a78" + "220b0a036b3873120473613a79" +
		"28901c" + "3203632e64" + "3203652e66" + "3801" + "4001" + "488080808020" + "52036e2e78" + "5803" + "6001" + "68ac02" +
		"720168" + "7807" + "820104" + "0801" + "1001"
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(raw); got != want {
		t.Errorf("entry is\n%s, want\n%s", got, want)
	}
	golden, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	back := &spirepb.Entry{}
	if err := proto.Unmarshal(golden, back); err != nil || !proto.Equal(entry, back) {
		t.Errorf("the bytes are read as %v, %v", back, err)
	}
}

// files returns our files, found by their package.
func files() []protoreflect.FileDescriptor {
	var out []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(f.Package()), "spire.api.") {
			out = append(out, f)
		}
		return true
	})
	return out
}

func fieldsOf(t *testing.T, m protoreflect.MessageDescriptor) string {
	t.Helper()
	var out []string
	fields := slices.Collect(func(yield func(protoreflect.FieldDescriptor) bool) {
		for i := range m.Fields().Len() {
			if !yield(m.Fields().Get(i)) {
				return
			}
		}
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	for _, f := range fields {
		msg := dynamicpb.NewMessage(m)
		value := sample(t, msg, f)
		if f.IsList() {
			list := msg.NewField(f).List()
			list.Append(value)
			value = protoreflect.ValueOfList(list)
		}
		msg.Set(f, value)
		raw, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s=%x", f.Name(), raw))
	}
	return strings.Join(out, " ")
}

// sample is the value of a field in the golden bytes. Signed numbers have to be such:
// other kinds would look the same.
func sample(t *testing.T, m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Value {
	t.Helper()
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(5)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 << 33)
	case protoreflect.Uint64Kind:
		if f.FullName() != "spire.api.types.Bundle.sequence_number" {
			t.Errorf("%s is unsigned", f.FullName())
		}
		return protoreflect.ValueOfUint64(1 << 33)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("a")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff})
	case protoreflect.MessageKind:
		if f.IsList() {
			return protoreflect.ValueOfMessage(m.NewField(f).List().NewElement().Message())
		}
		return protoreflect.ValueOfMessage(m.NewField(f).Message())
	}
	t.Fatalf("%s has kind %s", f.FullName(), f.Kind())
	return protoreflect.Value{}
}

func listEnums(out map[string]string, list protoreflect.EnumDescriptors) {
	for i := range list.Len() {
		e := list.Get(i)
		var names []string
		for n := range e.Values().Len() {
			value := e.Values().ByNumber(protoreflect.EnumNumber(n)) //nolint:gosec // few
			if value == nil {
				names = append(names, "nothing")
				continue
			}
			names = append(names, string(value.Name()))
		}
		out[string(e.FullName())] = strings.Join(names, " ")
	}
}
