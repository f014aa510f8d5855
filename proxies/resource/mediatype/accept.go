// Package mediatype knows in which media types an API server tells its kinds and its version.
package mediatype

import (
	"slices"
	"strings"
)

// Plain is the media type that every answer has which tells the version or the kinds
// of an API server.
const Plain = "application/json"

// Alike are what an API server takes for plain.
var Alike = []string{Plain, "application/*", "*/*"}

// Aggregated begins the media types of discovery in one answer.
const Aggregated = "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;"

// forms are the other media types that such answers come in, as form writes them.
var forms = []string{
	Aggregated + "v=v2",
	Aggregated + "v=v2beta1",
	Aggregated + "profile=nopeer;v=v2",
	"application/vnd.kubernetes.protobuf",
	"application/cbor",
	"application/yaml",
	"application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
	"application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
	"application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
	"application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
}

// maxForms is how many of them a caller may want before plain: client-go names three.
const maxForms = 3

// AcceptOf returns what the lines of an Accept ask for, of a closed set: all that ask
// for the same are one. False when they ask for anything else, or say how much they
// like each.
func AcceptOf(lines []string) (string, bool) {
	var wanted []string
	for clause := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		f := Form(clause)
		switch {
		case f == "", slices.Contains(wanted, f):
			continue
		case slices.Contains(Alike, f):
			// What is behind it is never chosen.
			return strings.Join(append(wanted, Plain), ","), true
		case !slices.Contains(forms, f) || len(wanted) == maxForms:
			return "", false
		}
		wanted = append(wanted, f)
	}
	if len(wanted) == 0 {
		return Plain, true // of anyone who says nothing
	}
	return strings.Join(wanted, ","), true
}

// Form writes a media type with its parameters in order.
func Form(clause string) string {
	parts := strings.Split(clause, ";")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	parts[0] = strings.ToLower(parts[0])
	slices.Sort(parts[1:])
	return strings.Join(parts, ";")
}
