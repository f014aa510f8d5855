package identity

import (
	"net/url"
	"strings"
)

// AgentOfClusterURL returns the agent that the URL of a cluster names in its query, as
// the cluster Secrets of argocd-agent do: https://host:9090?agentName=edge-1. It
// returns false for every other URL. As to Argo CD, slashes at the end make no
// difference.
func AgentOfClusterURL(server string) (AgentName, bool) {
	if !strings.Contains(server, "agentName=") {
		return AgentName{}, false // as nearly always
	}
	u, err := url.Parse(strings.TrimRight(server, "/"))
	if err != nil {
		return AgentName{}, false
	}
	named := u.Query()["agentName"]
	if len(named) != 1 {
		return AgentName{}, false
	}
	name, err := ParseAgentName(named[0])
	return name, err == nil
}
