package identity

import (
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	// maxIDBytes is the longest SPIFFE ID that we create or accept, in bytes
	// (SPIFFE-ID, section 2.3).
	maxIDBytes = 2048
	// maxTrustDomainBytes is the longest trust domain name, in bytes
	// (SPIFFE-ID, section 2.1: that of a URI authority's host).
	maxTrustDomainBytes = 255
	// reservedPath and everything under it belongs to SPIRE itself: its
	// servers and agents, never a workload.
	reservedPath = "/spire"
	// agentPath comes before the name in the SPIFFE IDs that agentctl proposes.
	agentPath = "/argomesh/agent/"
)

// ParseID returns the SPIFFE ID of a workload written in s: a trust domain and a
// path, at most 2048 bytes together, the path not reserved by SPIRE. The
// error wraps [ErrInvalid] and says which rule is broken.
func ParseID(s string) (spiffeid.ID, error) {
	if len(s) > maxIDBytes {
		return spiffeid.ID{}, fmt.Errorf("spiffe id %s: has %d bytes, at most %d are allowed: %w",
			Quote(s), len(s), maxIDBytes, ErrInvalid)
	}
	id, err := spiffeid.FromString(s)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("spiffe id %s: %w: %w", Quote(s), err, ErrInvalid)
	}
	if err := CheckID(id); err != nil {
		return spiffeid.ID{}, err
	}
	return id, nil
}

// CheckID tells whether id, which may have come from a certificate, can be that
// of a workload by the rules of [ParseID]. The error wraps [ErrInvalid].
func CheckID(id spiffeid.ID) error {
	path := id.Path()
	var problem string
	switch {
	case id.IsZero():
		problem = "is empty"
	case len(id.String()) > maxIDBytes:
		problem = fmt.Sprintf("has %d bytes, at most %d are allowed", len(id.String()), maxIDBytes)
	case len(id.TrustDomain().Name()) > maxTrustDomainBytes:
		problem = fmt.Sprintf("trust domain has more than %d bytes", maxTrustDomainBytes)
	case path == "":
		problem = "has no path, so it stands for a trust domain and not for a workload"
	case path == reservedPath, strings.HasPrefix(path, reservedPath+"/"):
		problem = "path " + reservedPath + " is reserved for SPIRE's servers and agents"
	default:
		return nil
	}
	return fmt.Errorf("spiffe id %s: %s: %w", Quote(id.String()), problem, ErrInvalid)
}

// AgentID returns the SPIFFE ID that agentctl gives to an agent when no one chose
// another: spiffe://<td>/argomesh/agent/<name>. It is the zero ID when td or
// name is zero.
func AgentID(td spiffeid.TrustDomain, name AgentName) spiffeid.ID {
	if td.IsZero() || name.IsZero() {
		return spiffeid.ID{}
	}
	id, err := spiffeid.FromPath(td, agentPath+name.label)
	if err != nil {
		return spiffeid.ID{} // unreachable: a DNS label is a path segment
	}
	return id
}

// AgentNameIn returns the name in a SPIFFE ID that has the form of [AgentID], of any
// trust domain. It says whom an ID is probably meant for; whose it is says the registry.
func AgentNameIn(id spiffeid.ID) (name AgentName, found bool) {
	label, found := strings.CutPrefix(id.Path(), agentPath)
	if !found {
		return AgentName{}, false
	}
	name, err := ParseAgentName(label)
	return name, err == nil
}
