package spire_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"crypto/ecdsa"
	"crypto/elliptic"
	"math/big"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/heap"
)

// mostHeap is what a bundle of n bytes may take: eight times its bytes, and what a short
// one takes anyway.
func mostHeap(n int) uint64 { return uint64(8*n + 1<<20) }

// rootOf is a root with as many names as fit into so many bytes.
func rootOf(t testing.TB, names int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	for range names {
		c.URIs = append(c.URIs, &url.URL{Path: "a"})
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
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
