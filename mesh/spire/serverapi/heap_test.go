package serverapi_test

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"

	bundlev1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/bundle/v1"
	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/stream/protolimit"
	"github.com/argomesh/argomesh/test/heap"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// mostHeap is what a bundle of n bytes may take: eight times its bytes, and what a short
// one takes anyway.
func mostHeap(n int) uint64 { return uint64(8*n + 1<<20) }

// rootOf is a root with so many names.
func rootOf(t testing.TB, names int) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(certkit.New(t, x509.Certificate{IsCA: true, URIs: slices.Repeat([]*url.URL{{Path: "a"}}, names)}).Certificate.Raw)
}

// Whatever a partner's bundle is full of, it is counted before it is decoded.
func TestHeapOfBundles(t *testing.T) {
	full := func(begin, element, end string) []byte {
		n := (spire.MaxBundleBytes - len(begin) - len(end)) / (len(element) + 1)
		return []byte(begin + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + end)
	}
	const root = `{"keys":[{"kty":"EC","use":"x509-svid","x5c":["`
	for name, text := range map[string][]byte{
		"numbers":                  full(`{"keys":[`, `0`, `]}`),
		"empty keys":               full(`{"keys":[`, `{}`, `]}`),
		"certificates of one":      full(`{"keys":[{"kty":"EC","use":"x509-svid","x5c":[`, `""`, `]}]}`),
		"keys of many members":     full(`{"keys":[{`, `"kty":"EC"`, `}]}`),
		"another member":           full(`{"keys":[],"more":[`, `{"a":[0]}`, `]}`),
		"depth":                    []byte(strings.Repeat(`{"keys":[`, spire.MaxBundleBytes/9)),
		"a long key":               full(`{"keys":[{"kty":"RSA","use":"jwt-svid","kid":"a","e":"AQAB","n":"`+strings.Repeat("_", spire.MaxBundleBytes-200), "", `"}]}`),
		"a long id":                full(`{"keys":[{"kty":"RSA","use":"jwt-svid","e":"AQAB","n":"AQAB","kid":"`+strings.Repeat("k", spire.MaxBundleBytes-200), "", `"}]}`),
		"a root of many names":     []byte(root + rootOf(t, 200000) + `"]}]}`),
		"the longest root":         []byte(root + rootOf(t, 24000) + `"]}]}` + strings.Repeat(" ", spire.MaxBundleBytes-200000)),
		"many roots of many names": full(`{"keys":[`, fmt.Sprintf(`{"kty":"EC","use":"x509-svid","x5c":["%s"]}`, rootOf(t, 1000)), `]}`),
		"no JSON":                  bytes.Repeat([]byte("["), spire.MaxBundleBytes),
	} {
		var err error
		if took := heap.Of(func() { _, err = spire.ParseBundle(partner, text) }); took > mostHeap(len(text)) {
			t.Errorf("%s: %d bytes of heap for %d, %v", name, took, len(text), err)
		}
	}
}

// mostReplyHeap is what one answer of a SPIRE server may take, decoded and read.
const mostReplyHeap = 64 << 20

// field is one that can be repeated, and the fields that lead to it.
type field []protoreflect.FieldDescriptor

func (f field) String() string { return string(f[len(f)-1].FullName()) }

// lists returns the fields of a message, at any depth, that can be repeated.
func lists(d protoreflect.MessageDescriptor, before field) []field {
	var all []field
	for i := range d.Fields().Len() {
		f := append(append(field{}, before...), d.Fields().Get(i))
		if f[len(f)-1].IsList() {
			all = append(all, f)
		}
		if f[len(f)-1].Kind() == protoreflect.MessageKind {
			all = append(all, lists(f[len(f)-1].Message(), f)...)
		}
	}
	return all
}

// reply is an answer with that many empty ones of a field, whose bytes are few.
func (f field) reply(n int) []byte {
	last := len(f) - 1
	b := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, f[last].Number(), protowire.BytesType), nil), n)
	for i := last - 1; i >= 0; i-- {
		b = protowire.AppendBytes(protowire.AppendTag(nil, f[i].Number(), protowire.BytesType), b)
	}
	return b
}

// read reads an answer as the client does.
func read(d protoreflect.MessageDescriptor, b []byte) error {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return err
	}
	m := t.New().Interface()
	if err := (protolimit.Codec{Heap: serverapi.MaxReplyHeap}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
		return err
	}
	switch m := m.(type) {
	case *entryv1.ListEntriesResponse:
		for _, e := range m.GetEntries() {
			_, _ = serverapi.ReadEntry(e) // what cannot be read takes heap too
		}
	case *entryv1.BatchCreateEntryResponse:
		for _, r := range m.GetResults() {
			_, _ = serverapi.ReadEntry(r.GetEntry())
		}
	}
	return nil
}

// Of each field that a SPIRE server can repeat, as many as fit into an answer are refused
// before any is decoded, and as many as are taken take at most 64 MiB.
func TestHeapOfReplies(t *testing.T) {
	const nothing = 256 << 10
	n := 0
	for _, m := range []proto.Message{&entryv1.ListEntriesResponse{}, &bundlev1.ListFederatedBundlesResponse{}, &trustdomainv1.ListFederationRelationshipsResponse{}} {
		file := m.ProtoReflect().Descriptor().ParentFile()
		for i := range file.Messages().Len() {
			d := file.Messages().Get(i)
			if !strings.HasSuffix(string(d.Name()), "Response") {
				continue
			}
			for _, f := range lists(d, nil) {
				n++
				all := f.reply((serverapi.MaxMessageBytes - 64) / len(f[len(f)-1:].reply(1)))
				var err error
				if took := heap.Of(func() { err = read(d, all) }); took > nothing || !errors.Is(err, protolimit.ErrTooLarge) {
					t.Errorf("%s full of %s: %d bytes of heap, %v", d.Name(), f, took, err)
				}
				const part = 1 << 10 // it is found for one of so many parts
				most := part * sort.Search(part, func(n int) bool { return protolimit.Check(d, f.reply(n+1), serverapi.MaxReplyHeap/part) != nil })
				if took := heap.Of(func() { err = read(d, f.reply(most)) }); took > mostReplyHeap || err != nil || most < 50000 {
					t.Errorf("%s with %d %s: %d bytes of heap, %v", d.Name(), most, f, took, err)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d fields were found: mend this test", n)
	}
}

// The client refuses such answers, and bundles whose certificates would take too much.
func TestRepliesThatTakeTooMuch(t *testing.T) {
	root, err := base64.StdEncoding.DecodeString(rootOf(t, 10000))
	if err != nil {
		t.Fatal(err)
	}
	roots := &types.Bundle{TrustDomain: partner.Name()}
	for range serverapi.MaxReplyKeyBytes/len(root) + 1 {
		roots.X509Authorities = append(roots.X509Authorities, &types.X509Certificate{Asn1: root})
	}
	bundle, err := serverapi.WriteBundle(spiretest.NewBundle(t, partner))
	if err != nil {
		t.Fatal(err)
	}
	keys := &types.Bundle{TrustDomain: partner.Name()}
	for size := 0; size <= serverapi.MaxReplyKeyBytes; size += len(bundle.GetJwtAuthorities()[0].GetPublicKey()) {
		keys.JwtAuthorities = append(keys.JwtAuthorities, &types.JWTKey{KeyId: fmt.Sprint(size), PublicKey: bundle.GetJwtAuthorities()[0].GetPublicKey()})
	}
	list := &strange{list: &entryv1.ListEntriesResponse{Entries: make([]*types.Entry, 200000)}}
	err = startStrange(t, list).ListEntries(t.Context(), serverapi.EntryFilter{}, func(spire.Entry) error { return nil })
	if !errors.Is(err, spire.ErrReply) || !strings.Contains(err.Error(), protolimit.ErrTooLarge.Error()) {
		t.Errorf("200,000 entries: %v", err)
	}
	for what, m := range map[string]*types.Bundle{"roots": roots, "keys": keys} {
		client := startStrange(t, &strange{bundle: m})
		if took := heap.Of(func() { _, err = client.FederatedBundle(t.Context(), partner) }); took > mostReplyHeap || !errors.Is(err, spire.ErrReply) {
			t.Errorf("a bundle of %s: %d bytes of heap, %v", what, took, err)
		}
	}
}
