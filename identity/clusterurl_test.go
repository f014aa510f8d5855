package identity_test

import (
	"testing"

	"github.com/argomesh/argomesh/identity"
)

func TestAgentOfClusterURL(t *testing.T) {
	for server, want := range map[string]string{
		"https://argocd-agent-resource-proxy:9090?agentName=edge-1":     "edge-1",
		"https://argocd-agent-resource-proxy:9090/?agentName=edge-1":    "edge-1",
		"https://argocd-agent-resource-proxy:9090?agentName=edge-1/":    "edge-1",
		"https://argocd-agent-resource-proxy:9090?a=b&agentName=edge-1": "edge-1",
		"": "",
		"https://argocd-agent-resource-proxy:9090":                                   "",
		"https://argocd-agent-resource-proxy:9090?agentName=":                        "",
		"https://argocd-agent-resource-proxy:9090?agentName=Edge_1":                  "",
		"https://argocd-agent-resource-proxy:9090?agentName=*":                       "",
		"https://argocd-agent-resource-proxy:9090?agentName=edge-1&agentName=edge-2": "",
		"https://argocd-agent-resource-proxy:9090?notagentName=edge-1":               "",
		"https://argocd-agent-resource-proxy:9090/agentName=edge-1":                  "",
		"https://argocd-agent-resource-proxy:9090#agentName=edge-1":                  "",
		"https://argocd-agent-resource-proxy:port?agentName=edge-1":                  "",
		"https://proxy:9090?agentName=edge-1;x":                                      "",
	} {
		name, ok := identity.AgentOfClusterURL(server)
		if name.String() != want || ok != (want != "") {
			t.Errorf("AgentOfClusterURL(%q) = %q, %t, want %q", server, name, ok, want)
		}
	}
}
