package header

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/test/heap"
)

func TestParse(t *testing.T) {
	many := func(n int, part, separator string) string {
		return strings.TrimSuffix(strings.Repeat(part+separator, n), separator)
	}
	for name, tt := range map[string]struct {
		header string
		want   []element // nil: refused
	}{
		"plain Envoy": {
			`By=http://frontend.example;Hash=468ed3;Subject="/C=US/ST=CA/L=San Francisco/OU=Example/CN=Test Client";URI=http://client.example`,
			[]element{{"by": {"http://frontend.example"}, "hash": {"468ed3"}, "subject": {"/C=US/ST=CA/L=San Francisco/OU=Example/CN=Test Client"}, "uri": {"http://client.example"}}},
		},
		"Istio": {
			`By=spiffe://cluster.local/ns/foo/sa/httpbin;Hash=01ab;Subject="";URI=spiffe://cluster.local/ns/foo/sa/sleep`,
			[]element{{"by": {"spiffe://cluster.local/ns/foo/sa/httpbin"}, "hash": {"01ab"}, "subject": {""}, "uri": {"spiffe://cluster.local/ns/foo/sa/sleep"}}},
		},
		"several elements, URIs and names": {
			`By=a;By=b;URI=c;URI=d;DNS=x.test;DNS=y.test,Hash=1;Chain="%2D"`,
			[]element{{"by": {"a", "b"}, "uri": {"c", "d"}, "dns": {"x.test", "y.test"}}, {"hash": {"1"}, "chain": {"%2D"}}},
		},
		"separators, equals signs and blanks in quotes": {`Subject="CN=a,O=b;c = d"`, []element{{"subject": {"CN=a,O=b;c = d"}}}},
		"a quote after a backslash":                     {`Subject="a\"b",URI=c`, []element{{"subject": {`a"b`}}, {"uri": {"c"}}}},
		"a backslash before something else":             {`Subject="CN=a\,b\\c"`, []element{{"subject": {`CN=a\,b\\c`}}}},
		"keys in any case":                              {`uri=a;SUBJECT="b"`, []element{{"uri": {"a"}, "subject": {"b"}}}},
		"keys of a newer Envoy":                         {`Issuer="x";URI=a`, []element{{"issuer": {"x"}, "uri": {"a"}}}},
		"blanks around elements":                        {` URI=a , Subject="b" ,URI=c `, []element{{"uri": {"a"}}, {"subject": {"b"}}, {"uri": {"c"}}}},
		"empty values":                                  {`URI=;Subject=,DNS=`, []element{{"uri": {""}, "subject": {""}}, {"dns": {""}}}},
		"as many elements as there may be":              {many(maxElements, "URI=", ","), slices.Repeat([]element{{"uri": {""}}}, maxElements)},
		"as many pairs as there may be":                 {many(maxPairs, "DNS=a", ";"), []element{{"dns": slices.Repeat([]string{"a"}, maxPairs)}}},
		"as many bytes as there may be": {
			"DNS=" + strings.Repeat("a", maxHeaderBytes-4), []element{{"dns": {strings.Repeat("a", maxHeaderBytes-4)}}},
		},

		"nothing":                                {``, nil},
		"a blank":                                {` `, nil},
		"an empty element":                       {`URI=a,,URI=b`, nil},
		"an empty last element":                  {`URI=a,`, nil},
		"an empty pair":                          {`URI=a;;Hash=b`, nil},
		"an empty last pair":                     {`URI=a;`, nil},
		"no equals sign":                         {`URI`, nil},
		"no key":                                 {`=a`, nil},
		"a key with a blank":                     {`URI =a`, nil},
		"a blank before a key":                   {`Hash=a; URI=b`, nil},
		"a key in quotes":                        {`"URI"=a`, nil},
		"a long key":                             {strings.Repeat("k", maxKeyBytes+1) + "=a", nil},
		"a quote that is not closed":             {`Subject="a`, nil},
		"a quote closed by an escaped one only":  {`Subject="a\"`, nil},
		"two backslashes before a quote":         {`Subject="a\\";URI=b`, nil},
		"three backslashes before a quote":       {`Subject="a\\\"b"`, nil},
		"text after a quote":                     {`Subject="a"b;URI=c`, nil},
		"a quote inside a value":                 {`URI=a"b"`, nil},
		"an equals sign without quotes":          {`URI=a=b`, nil},
		"a blank without quotes":                 {`URI=a b`, nil},
		"a blank between pairs":                  {`Subject="a" ;URI=b`, nil},
		"a second hash":                          {`Hash=a;Hash=a`, nil},
		"a second hash after an empty one":       {`Hash=;Hash=a`, nil},
		"a second certificate":                   {`Cert="a";cert="b"`, nil},
		"a second chain":                         {`Chain="a";Chain="b"`, nil},
		"a second subject":                       {`Subject="a";Subject="b"`, nil},
		"a tab":                                  {"URI=a,\tURI=b", nil},
		"a line break":                           {"URI=a\nURI=b", nil},
		"a zero byte":                            {"URI=a\x00", nil},
		"a character that is not ASCII":          {`Subject="ä"`, nil},
		"one element more than there may be":     {many(maxElements+1, "URI=", ","), nil},
		"one pair more than there may be":        {many(maxPairs+1, "DNS=a", ";"), nil},
		"one byte more than there may be":        {"DNS=" + strings.Repeat("a", maxHeaderBytes-3), nil},
		"a claim that swallows what is appended": {`URI=spiffe://hub.test/victim;Subject=",By=p;Hash=1;URI=spiffe://hub.test/thief`, nil},
	} {
		got, err := parse(tt.header)
		if (err == nil) != (tt.want != nil) || !cmp.Equal(tt.want, got) {
			t.Errorf("%s: parse(%.200s) = %v (-want +got):\n%s", name, tt.header, err, cmp.Diff(tt.want, got))
		}
	}
}

// The grammar again, as one expression, with another way of reading: the oracle of
// FuzzParse.
const (
	quotedForm  = `"(?:[^"\\]|\\"|\\+[^"\\])*"`
	pairForm    = `[A-Za-z]{1,32}=(?:` + quotedForm + `|[^,;"= ]*)`
	elementForm = ` *` + pairForm + `(?:;` + pairForm + `)* *`
)

var (
	headerForm = regexp.MustCompile(`^` + elementForm + `(?:,` + elementForm + `)*$`)
	firstPair  = regexp.MustCompile(`^ *(` + pairForm + `)`)
	ascii      = regexp.MustCompile(`^[\x20-\x7e]*$`)
)

// oracle reads a header by expressions and by no code of parse.
func oracle(header string) (elements []map[string][]string, ok bool) {
	if len(header) > maxHeaderBytes || !ascii.MatchString(header) || !headerForm.MatchString(header) {
		return nil, false
	}
	rest, last := header, map[string][]string{}
	for pairs := 1; ; pairs++ {
		found := firstPair.FindStringSubmatch(rest)
		if found == nil || pairs > maxPairs {
			return nil, false
		}
		key, value, _ := strings.Cut(found[1], "=")
		if inner, quoted := strings.CutPrefix(value, `"`); quoted {
			value = strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `\"`, `"`)
		}
		key = strings.ToLower(key)
		last[key] = append(last[key], value)
		rest = strings.TrimLeft(rest[len(found[0]):], " ")
		if strings.HasPrefix(rest, ";") {
			rest = rest[1:]
			continue
		}
		elements = append(elements, last)
		if rest == "" {
			break
		}
		rest, last, pairs = rest[1:], map[string][]string{}, 0
	}
	for _, e := range elements {
		for _, key := range []string{"subject", "chain", "cert", "hash"} {
			if len(e[key]) > 1 {
				return nil, false
			}
		}
	}
	return elements, len(elements) <= maxElements
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`By=spiffe://hub.test/proxy;Hash=01ab;Cert="%2D%2D";Subject="CN=a\"b\,c";URI=spiffe://hub.test/edge;DNS=a.test;DNS=b.test`,
		`By=a;URI=b , By=c;URI=d`, `URI=`, `Subject="\\",URI=a`, `Subject="a\\\"";URI=b`, `,`, `;`, `=`, `"`, ` URI=a ;URI=b`, `A="" ,B=""`,
		`URI=victim;Subject="` + `,By=p;Subject="CN=x";URI=thief`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		want, ok := oracle(header)
		var got []element
		var err error
		heap.Bound(t, len(header), func() { got, err = parse(header) })
		if ok != (err == nil) {
			t.Fatalf("parse(%q) = %v, the oracle reads %v", header, err, want)
		}
		if len(want) != len(got) {
			t.Fatalf("parse(%q) has %d elements, the oracle %d", header, len(got), len(want))
		}
		for i := range want {
			if diff := cmp.Diff(want[i], map[string][]string(got[i])); diff != "" {
				t.Fatalf("parse(%q), element %d (-oracle +got):\n%s", header, i, diff)
			}
		}
	})
}

// Whatever a client writes into the header, what our proxy appends is read as the
// proxy wrote it, or nothing is.
func FuzzAppended(f *testing.F) {
	for _, claim := range []string{
		`URI=spiffe://hub.test/victim`, `Subject="`, `Subject="\`, `Subject="\\`, `URI=spiffe://hub.test/victim;Subject="`, `a=b;`, `a=`, `a="x",`, `a="\"`, `,`,
	} {
		f.Add(claim)
	}
	appended := []string{
		`By=spiffe://hub.test/proxy;Hash=01ab;Subject="";URI=spiffe://hub.test/edge`,
		`By=spiffe://hub.test/proxy;Hash=01ab;Subject="CN=edge,O=a;b=c";URI=spiffe://hub.test/edge;DNS=edge.test`,
		`By=spiffe://hub.test/proxy;Hash=01ab;Cert="%2D%2D";Subject="CN=a\"b";URI=spiffe://hub.test/edge`,
		`By=spiffe://hub.test/proxy;URI=spiffe://hub.test/edge`,
	}
	f.Fuzz(func(t *testing.T, claim string) {
		for _, element := range appended {
			alone, err := parse(element)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parse(claim + "," + element)
			if err != nil {
				continue
			}
			if diff := cmp.Diff(alone[0], got[len(got)-1]); diff != "" {
				t.Fatalf("parse(%q) takes the proxy's element for another (-want +got):\n%s", claim+","+element, diff)
			}
		}
	})
}
