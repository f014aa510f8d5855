package access

import (
	"net/http"
	"slices"
	"strings"
)

// whileOff decides while live access is off. What an API server is and has is told all the
// same: argocd-server asks for it before it creates an Application, and a client that
// has it gets its refusal with the first call for an object. A spoke names Kubernetes'
// own kinds then, a hub passes on what the spoke shows. The zero Policy tells nothing.
func (p *Policy) whileOff(r Request) Decision {
	group, named := groupOfPath(r.Path)
	switch {
	case p.side == 0, r.IsResource(), !isRead(r), r.Upgrade, !r.Impersonate.IsZero(), !isDescription(r.Path),
		p.side == Spoke && named && !IsOwnGroup(group):
		return p.refuse(r, RuleEnabled, "live access is disabled; set "+p.key("enabled", "enabled"))
	}
	return Decision{Allowed: true, Side: p.side, Rule: RuleDiscovery, OwnKinds: p.side == Spoke, request: r}
}

// isRead reports whether r, which is for no object, only reads.
func isRead(r Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// isDescription reports whether path, which is that of no object, tells the version or
// the kinds of an API server.
func isDescription(path string) bool {
	first, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	return first == prefixCore || first == prefixGrouped || (first == "version" && rest == "")
}

// groupOfPath returns the API group that a path of discovery names, if it does.
func groupOfPath(path string) (group string, named bool) {
	rest, named := strings.CutPrefix(strings.TrimSuffix(path, "/"), "/"+prefixGrouped+"/")
	group, _, _ = strings.Cut(rest, "/")
	return group, named
}

// IsOwnGroup reports whether Kubernetes' own API server serves the API group, and no
// definition or extension of a cluster does.
func IsOwnGroup(group string) bool { return slices.Contains(ownGroups, group) }

// ownGroups are those of the releases of Kubernetes that are known here; the core is "".
var ownGroups = []string{
	"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "authentication.k8s.io",
	"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io",
	"events.k8s.io", "extensions", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io",
	"node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
	"storagemigration.k8s.io",
}
