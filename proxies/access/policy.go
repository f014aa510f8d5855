package access

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Decide says whether a call that Parse returned may be made.
func (p *Policy) Decide(r Request) Decision {
	if !p.config.Enabled {
		return p.whileOff(r)
	}
	if d, refused := p.impersonation(r); refused {
		return d
	}
	if !r.IsResource() {
		return p.nonResource(r)
	}
	for _, u := range p.uses(r) {
		if !u.on {
			return p.refuse(r, u.rule, p.off(r, u))
		}
	}
	if r.Verb == verbProxy {
		return p.refuse(r, RuleProxy, "no Kubernetes of today has this form of proxy; use the subresource")
	}
	if changes(r) && fromHubController(r) {
		return p.refuse(r, RuleHubController,
			"an application controller of the hub writes nothing on a spoke; the spoke's own does")
	}
	rule, covered := p.covering(r)
	if !covered {
		verb := r.Verb
		if r.Apply {
			verb += " with create, as server-side apply is, of"
		}
		return p.refuse(r, RuleDefault, fmt.Sprintf("no rule in %s covers %s %s", p.key("rules", "rules"), verb, where(r)))
	}
	d := Decision{Allowed: true, Side: p.side, Rule: rule, Masked: p.masks() && isSecrets(r), request: r}
	if p.config.TrackedOnly {
		return p.tracked(d)
	}
	return d
}

// off says why a use is not let through, and what lets it: of Secrets the least that does.
func (p *Policy) off(r Request, u use) string {
	setting := p.key(u.hubKey, u.spokeKey)
	switch {
	case u.rule == RuleSecrets && p.masks():
		return setting + " is masked: Secrets are read one by one or as a list, and neither watched nor changed"
	case ReadsSecrets(r) && p.side == Hub:
		return u.what +
			" disabled; spec.access.secrets: masked of the Agent shows them without their values, if the spoke's owner allows that, too"
	case ReadsSecrets(r):
		return u.what +
			" disabled; the spoke's owner shows them without their values by access.secrets: masked in the agent's configuration"
	}
	return u.what + " disabled; set " + setting
}

func (p *Policy) impersonation(r Request) (d Decision, refused bool) {
	who := r.Impersonate
	switch {
	case who.IsZero():
		return Decision{}, false
	case !slices.Contains(p.config.Impersonate, who.User):
		return p.refuse(r, RuleImpersonation,
			fmt.Sprintf("user %q is not listed in %s", clip(who.User, 253), p.key("impersonate", "impersonate"))), true
	case who.UID != "" || who.Groups || who.Extra:
		return p.refuse(r, RuleImpersonation, "a user is impersonated without UID, groups and extra fields"), true
	}
	return Decision{}, false
}

// nonResource decides about paths that are no objects.
func (p *Policy) nonResource(r Request) Decision {
	switch {
	case !isRead(r):
		return p.refuse(r, RuleNonResource, "paths other than objects allow only GET and HEAD")
	case r.Upgrade:
		return p.refuse(r, RuleNonResource, "paths other than objects have no upgrade")
	case !isDiscovery(r.Path):
		return p.refuse(r, RuleNonResource,
			"of paths other than objects only version, discovery, OpenAPI and health are open")
	}
	return Decision{Allowed: true, Side: p.side, Rule: RuleDiscovery, request: r}
}

// isDiscovery reports whether path, which is that of no object, tells only what an
// API server is and has.
func isDiscovery(path string) bool {
	path = strings.TrimSuffix(path, "/")
	switch path {
	case "", "/version", "/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3":
		return true
	}
	first, rest, _ := strings.Cut(path[1:], "/")
	return first == prefixCore || first == prefixGrouped || (first == "openapi" && strings.HasPrefix(rest, "v3/"))
}

// uses returns what r asks for that has a switch.
func (p *Policy) uses(r Request) []use {
	var out []use
	if isSecrets(r) {
		on := p.config.Secrets == v1alpha1.SecretsOn || (p.masks() && ReadsSecrets(r))
		out = append(out, use{RuleSecrets, on, "access to Secrets is", "secrets", "secrets"})
	}
	for _, s := range switches {
		if what := s.use(r); what != "" {
			out = append(out, use{s.Rule, *s.Of(&p.config), what, s.Field, s.Key})
		}
	}
	return out
}

func isSecrets(r Request) bool { return r.Group == "" && r.Resource == "secrets" }

// masks reports whether Secrets are shown without their values.
func (p *Policy) masks() bool { return p.config.Secrets == v1alpha1.SecretsMasked }

// ReadsSecrets reports whether r reads one Secret or a list of them and no more, which is
// what can be answered without the values. A watch goes on, and every write may be
// answered with the object.
func ReadsSecrets(r Request) bool {
	return isSecrets(r) && (r.Verb == "get" || r.Verb == "list") && r.Subresource == "" && !r.Upgrade &&
		r.Method != http.MethodHead
}

func isTokens(r Request) bool {
	switch r.Group {
	case "":
		return r.Resource == "serviceaccounts" && r.Subresource == "token"
	case "authentication.k8s.io":
		return r.Resource != "selfsubjectreviews"
	case "certificates.k8s.io":
		return true
	}
	return false
}

// isExec reports whether r runs something in a pod, or reaches one as its own processes do. Behind the proxy
// of a node is its kubelet, which does both for each pod of it.
func isExec(r Request) bool {
	return r.Subresource == "exec" || r.Subresource == "attach" || r.Subresource == "portforward" ||
		isNodes(r) && r.IsProxy()
}

// isSession reports whether r becomes a conversation with something that runs, by a
// subresource that only its API server knows, such as the console of a virtual
// machine. For RBAC that is a get. What is left of upgrades are those of a watch and a
// log, which say no more than without, and of a proxy, which has its own switch. Unlike
// exec it may be a write too: anyone who asks for an upgrade does not always get one.
func isSession(r Request) bool {
	watch := r.Verb == verbWatch && r.Subresource == ""
	log := r.Group == "" && r.Resource == "pods" && r.Subresource == "log"
	return r.Upgrade && !watch && !log && !r.IsProxy() && !isExec(r)
}

func isEphemeral(r Request) bool { return r.Subresource == "ephemeralcontainers" }

func isNodes(r Request) bool {
	return r.Resource == "nodes" && (r.Group == "" || r.Group == "metrics.k8s.io")
}

// isWrite reports whether the switch for writes counts: r changes something, and is
// no use whose own switch says so.
func isWrite(r Request) bool {
	switch {
	case r.IsProxy(), isExec(r), isSelfReview(r):
		return false
	case isTokens(r) && r.Group != "certificates.k8s.io":
		return false
	case isEphemeral(r):
		return r.Verb != "get" && r.Verb != "update" && r.Verb != "patch"
	}
	return !slices.Contains(reads, r.Verb)
}

// changes reports whether r may change something on the spoke, whatever its switch.
func changes(r Request) bool { return !slices.Contains(reads, r.Verb) && !isSelfReview(r) }

// isSelfReview reports whether r asks what the caller may do. It stores nothing.
func isSelfReview(r Request) bool {
	if r.Verb != "create" || r.Subresource != "" {
		return false
	}
	switch r.Group {
	case "authorization.k8s.io":
		return r.Resource == "selfsubjectaccessreviews" || r.Resource == "selfsubjectrulesreviews"
	case "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews"
	}
	return false
}

// hubController begins the User-Agent of Argo CD's application controller.
const hubController = "argocd-application-controller/"

// fromHubController reports whether the caller says that it is an application
// controller. It has the token of the cluster Secret as argocd-server has, so what
// it says is all there is: that keeps a controller out that means no harm, and
// skip-reconcile on the Secret is what keeps it from coming.
func fromHubController(r Request) bool { return strings.HasPrefix(r.UserAgent, hubController) }

// covering returns the name of the first rule that covers r. A server-side apply
// makes what is not there, so some rule must cover that too.
func (p *Policy) covering(r Request) (rule string, covered bool) {
	covering := func(verb string) int {
		return slices.IndexFunc(p.config.Rules, func(rule Rule) bool { return rule.covers(r, verb) })
	}
	i := covering(r.Verb)
	if i < 0 || (r.Apply && covering("create") < 0) {
		return "", false
	}
	return p.config.Rules[i].Name, true
}

// covers reports whether the rule covers call with that verb.
func (r Rule) covers(call Request, verb string) bool {
	if len(r.Verbs) > 0 && !slices.Contains(r.Verbs, verb) {
		return false
	}
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, call.Namespace) {
		return false
	}
	if len(r.Names) > 0 && !slices.Contains(r.Names, call.Name) {
		return false
	}
	if len(r.Resources) == 0 {
		return slices.Contains(commonVerbs[groupResource{call.Group, call.resource()}], verb)
	}
	return slices.ContainsFunc(r.Groups, func(group string) bool { return group == "*" || group == call.Group }) &&
		slices.ContainsFunc(r.Resources, func(resource string) bool {
			return resource == "*" || resource == call.resource() ||
				(call.Subresource != "" && resource == "*/"+call.Subresource)
		})
}

// tracked restricts d to tracked objects.
func (p *Policy) tracked(d Decision) Decision {
	r := d.request
	switch {
	case isSelfReview(r) || isEventsOf(r):
		return d
	case r.Name == "":
		return p.refuse(r, RuleTrackedOnly,
			fmt.Sprintf("%s is only for objects that an Argo CD Application tracks, each by its name, and for events with their involvedObject", p.key("trackedOnly", "tracked_only")))
	}
	d.Tracked = true
	return d
}

// where names what r is about.
func where(r Request) string {
	out := r.resource()
	if r.Group != "" {
		out += "." + r.Group
	}
	if r.Namespace != "" {
		return out + " in namespace " + clip(r.Namespace, 63)
	}
	return out + " without a namespace"
}
