package mediatype

import (
	"slices"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/heap"
)

// An Accept is one of a closed set, which means to us what it was read from.
func FuzzAcceptOf(f *testing.F) {
	f.Add("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	f.Add("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
	f.Add("*/*;q=0.8, application/yaml")
	f.Fuzz(func(t *testing.T, accept string) {
		var got string
		var known bool
		heap.Bound(t, len(accept), func() { got, known = AcceptOf([]string{accept}) })
		if !known {
			return
		}
		types := strings.Split(got, ",")
		for i, one := range types {
			if !slices.Contains(forms, one) && (one != Plain || i < len(types)-1) {
				t.Fatalf("acceptOf(%q) = %q", accept, got)
			}
		}
		if len(types) > maxForms+1 {
			t.Fatalf("acceptOf(%q) = %q, which is too many", accept, got)
		}
		if again, known := AcceptOf([]string{got}); again != got || !known {
			t.Fatalf("acceptOf(%q) = %q, and of that %q", accept, got, again)
		}
	})
}

// What a caller may write into Accept without end is one thing, or not kept.
func TestAcceptOf(t *testing.T) {
	const (
		v2      = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		v2beta1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
		openapi = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	)
	tests := map[string]struct {
		accept []string
		want   string // empty when it is not kept
	}{
		"none":                        {nil, Plain},
		"an empty one":                {[]string{""}, Plain},
		"JSON":                        {[]string{"application/json"}, Plain},
		"anything":                    {[]string{"*/*"}, Plain},
		"JSON and anything":           {[]string{"Application/JSON, */*"}, Plain},
		"in two lines":                {[]string{"application/json", "application/yaml"}, Plain},
		"client-go's discovery":       {[]string{v2 + "," + v2beta1 + "," + Plain}, Aggregated + "v=v2," + Aggregated + "v=v2beta1," + Plain},
		"the same, written otherwise": {[]string{"application/json; as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io," + v2 + ",," + v2beta1 + "," + Plain + ",x/y"}, Aggregated + "v=v2," + Aggregated + "v=v2beta1," + Plain},
		"client-go's, of itself":      {[]string{v2 + ";profile=nopeer," + v2 + "," + v2beta1 + "," + Plain}, Aggregated + "profile=nopeer;v=v2," + Aggregated + "v=v2," + Aggregated + "v=v2beta1," + Plain},
		"protobuf, or else JSON":      {[]string{"application/vnd.kubernetes.protobuf,application/json"}, "application/vnd.kubernetes.protobuf," + Plain},
		"OpenAPI's protobuf":          {[]string{openapi}, openapi},
		"a parameter nobody knows":    {[]string{"application/json;x=1"}, ""},
		"another version":             {[]string{strings.Replace(v2, "v2", "v3", 1)}, ""},
		"what is liked more":          {[]string{"application/json;q=0.5,application/yaml"}, ""},
		"another type first":          {[]string{"text/html,application/json"}, ""},
		"a parameter that is quoted":  {[]string{`application/json;as="APIGroupDiscoveryList"`}, ""},
		"too many":                    {[]string{"application/yaml,application/cbor," + openapi + ",application/vnd.kubernetes.protobuf"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, known := AcceptOf(tt.accept); got != tt.want || known != (tt.want != "") {
				t.Errorf("acceptOf(%q) = %q, %v, want %q", tt.accept, got, known, tt.want)
			}
		})
	}
}
