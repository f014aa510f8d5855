package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// SpiffeIDsOf returns the SPIFFE IDs of an agent: those given, or that of its trust domain.
func SpiffeIDsOf(name identity.AgentName, given []string, trustDomain string) ([]string, error) {
	if len(given) > 0 && trustDomain != "" {
		return nil, errors.New("--spiffe-id and --trust-domain: give one of them")
	}
	if trustDomain != "" {
		td, err := spiffeid.TrustDomainFromString(trustDomain)
		if err != nil {
			return nil, fmt.Errorf("--trust-domain %q: %w", trustDomain, err)
		}
		return []string{identity.AgentID(td, name).String()}, nil
	}
	if len(given) == 0 {
		return nil, errors.New("--spiffe-id is missing: the SPIFFE ID the agent presents; or give its --trust-domain")
	}
	ids := make([]string, len(given))
	for i, text := range given {
		id, err := identity.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("--spiffe-id: %w", err)
		}
		ids[i] = id.String()
	}
	return ids, nil
}

// ParseLabels reads the values of flag, key=value each.
func ParseLabels(flag string, pairs []string) (map[string]v1alpha1.LabelValue, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := make(map[string]v1alpha1.LabelValue, len(pairs))
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return nil, fmt.Errorf("%s %q: key=value is expected", flag, pair)
		}
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if len(problems) > 0 {
			return nil, fmt.Errorf("%s %q: %s", flag, pair, problems[0])
		}
		labels[key] = v1alpha1.LabelValue(value)
	}
	return labels, nil
}
