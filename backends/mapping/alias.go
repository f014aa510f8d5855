package mapping

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/identity"
)

// Alias is how the destination of an Application on the hub means an agent's cluster in
// words of argocd-agent that Argo CD does not take so. Such an Application is not sent:
// a controller of the hub and argocd-server would not find the spoke by it, or act on
// their own cluster.
type Alias uint8

const (
	// AliasNone is every other destination.
	AliasNone Alias = iota
	// AliasQuery is a server that names the agent in its query, as the cluster Secrets
	// of argocd-agent do. No cluster Secret has that URL.
	AliasQuery
	// AliasHub is the cluster of the hub itself, which argocd-agent takes for the
	// agent's in a namespace of the agent's.
	AliasHub
)

// aliasOf says how a destination means the agent's cluster. AliasHub does so in the
// agent's namespaces alone, which the caller knows.
func aliasOf(name, server string, agent identity.AgentName) Alias {
	switch {
	case name == object.InClusterName && server == "", name == "" &&
		strings.TrimRight(server, "/") == object.InClusterServer:
		return AliasHub
	case name == "":
		if named, ok := identity.AgentOfClusterURL(server); ok && named == agent {
			return AliasQuery
		}
	}
	return AliasNone
}

// AliasIn is aliasOf an Application in a namespace of the link's.
func (m Map) AliasIn(o object.Object) Alias {
	destination := o.Child("spec", "destination")
	alias := aliasOf(object.StringAt(destination, "name"), object.StringAt(destination, "server"), m.Agent)
	if alias == AliasHub && m.Divided() {
		return AliasNone // the hub deploys it
	}
	return alias
}

// Aliased is an Application of the hub whose destination is an alias of an agent's
// cluster.
type Aliased struct {
	Alias Alias
	// Destination is what its destination says: a server, or else a name.
	Destination string
	// Set is the ApplicationSet that makes the Application, and would undo what is
	// changed in its destination; empty for none.
	Set string
	// Reported says that the principal told, in the Application's condition, that it is the
	// agent's. In which namespaces an agent's Applications are is the principal's to know.
	Reported bool
}

// AliasedOf reads an Application of the hub; false when its destination is no alias of
// the agent's cluster.
func AliasedOf(o backends.Object, agent identity.AgentName) (Aliased, bool) {
	parsed, err := object.Parse(o)
	if err != nil {
		return Aliased{}, false
	}
	where := Destination{Seen: parsed}.Placement()
	a := Aliased{Alias: aliasOf(where.Name, where.Server, agent), Destination: where.Server, Set: setOf(parsed)}
	if a.Destination == "" {
		a.Destination = where.Name
	}
	a.Reported = slices.ContainsFunc(object.Conditions(parsed.Child("status")), func(c any) bool {
		m, _ := c.(map[string]any)
		return object.IsCondition(c, object.ErrorCondition) &&
			strings.Contains(object.StringAt(m, "message"), rewriteCommand(agent)+" ")
	})
	return a, a.Alias != AliasNone
}

// setOf is the ApplicationSet that makes an Application; empty for none.
func setOf(o object.Object) string {
	owners, _ := o.Child("metadata")["ownerReferences"].([]any)
	for _, owner := range owners {
		m, _ := owner.(map[string]any)
		if object.StringAt(m, "kind") == "ApplicationSet" &&
			strings.HasPrefix(object.StringAt(m, "apiVersion"), "argoproj.io/") {
			return object.StringAt(m, "name")
		}
	}
	return ""
}

// DestinationPatch is the merge patch that makes the agent's cluster the destination of
// an Application, by its name.
func DestinationPatch(agent identity.AgentName) map[string]any {
	return map[string]any{"spec": map[string]any{"destination": map[string]any{"name": agent.String(), "server": nil}}}
}

// rewriteCommand is the command that mends all destinations of an agent.
func rewriteCommand(agent identity.AgentName) string {
	return "agentctl agent rewrite-destinations " + agent.String()
}

// ExplainAlias says why an Application whose destination is an alias is not sent, and how that
// is mended. Of what a person may paste into a shell nothing is free text.
func (m Map) ExplainAlias(o object.Object, alias Alias) string {
	agent := m.Agent.String()
	why, when, flag := "the destination's server names agent "+agent+
		" as argocd-agent does, and Argo CD has no cluster of that URL", "", ""
	if alias == AliasHub {
		why = "the destination is the hub's own cluster, which argocd-agent takes for that of agent " + agent
		when, flag = "unless an application controller of the hub deploys it there, ", " --hub-has-no-controller"
	}
	how := fmt.Sprintf("mend it with: kubectl -n %s patch applications.argoproj.io %s --type merge -p '%s'",
		o.Key.Namespace, o.Key.Name, object.Encode(DestinationPatch(m.Agent)))
	if set := setOf(o); set != "" {
		how = "mend it in the template of ApplicationSet " + set + ", with name: " + agent + " in place of the server"
	}
	return fmt.Sprintf("%s; %s%s (for all of the agent's: %s -n %s%s)", why, when, how, rewriteCommand(m.Agent),
		m.Namespace, flag)
}

// AgentGlob is the agent that a server's URL names in its query, by a glob; empty for
// none. argocd-agent's cluster Secrets do, and projects that came from there still may.
func AgentGlob(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Query().Get("agentName")
}
